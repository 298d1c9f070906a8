// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// Alignment is the requirement on the pairs of a container: preferably or necessarily on one switch each.
type Alignment string

// The two alignments.
const (
	Preferred Alignment = "preferred"
	Required  Alignment = "required"
)

// MarshalText returns the value of the flag and the annotation.
func (a Alignment) MarshalText() ([]byte, error) { return []byte(a), nil }

// UnmarshalText accepts "preferred" and "required".
func (a *Alignment) UnmarshalText(text []byte) error {
	switch alignment := Alignment(text); alignment {
	case Preferred, Required:
		*a = alignment
		return nil
	default:
		return fmt.Errorf("want %s or %s", Preferred, Required)
	}
}

// Policy is the administrator's policy for annotations of pods.
type Policy struct {
	Alignment Alignment  // of pods without annotation; "" is Preferred
	Choose    Namespaces // whose pods may name devices
	OptOut    Namespaces // whose pods may choose Preferred if Alignment is Required
}

// Publish returns the policy for alignment as the node publishes it.
func (p Policy) Publish() model.Alignment {
	a := model.Alignment{Required: p.Alignment == Required}
	if text, err := p.OptOut.MarshalText(); err == nil && string(text) != none {
		a.OptOut = string(text)
	}
	return a
}

// PublishedPolicy returns the policy for alignment of a node that publishes it.
func PublishedPolicy(a model.Alignment) (p Policy, err error) {
	if a.Required {
		p.Alignment = Required
	}
	if err := p.OptOut.UnmarshalText([]byte(cmp.Or(a.OptOut, none))); err != nil {
		return p, fmt.Errorf("read namespaces %.64q of the alignment: %w", a.OptOut, err)
	}
	return p, nil
}

// none is the text of an empty set of namespaces.
const none = "none"

// Namespaces is a set of namespaces, or all. The zero value is empty.
type Namespaces struct {
	all   bool
	names []string
}

// AllNamespaces contains every namespace.
var AllNamespaces = Namespaces{all: true}

// Has reports whether the set contains a namespace.
func (n Namespaces) Has(name string) bool { return n.all || slices.Contains(n.names, name) }

// MarshalText returns "all", "none", or comma-separated names.
func (n Namespaces) MarshalText() ([]byte, error) {
	switch {
	case n.all:
		return []byte("all"), nil
	case len(n.names) == 0:
		return []byte(none), nil
	default:
		return []byte(strings.Join(n.names, ",")), nil
	}
}

// UnmarshalText accepts the results of MarshalText.
func (n *Namespaces) UnmarshalText(text []byte) error {
	var read Namespaces
	switch string(text) {
	case "all":
		read = AllNamespaces
	case none:
	default:
		for name := range strings.SplitSeq(string(text), ",") {
			name = strings.TrimSpace(name)
			if name == "" || name == "all" || name == none {
				return errors.New("want all, none, or names of namespaces with commas between")
			}
			read.names = append(read.names, name)
		}
	}
	*n = read
	return nil
}

// Domain is the prefix of Tandem's labels and annotations.
const Domain = "tandem.dev"

// Tandem's annotations of a pod.
const (
	// AlignmentKey has the value "required" or "preferred": with "required" a container is rejected unless each
	// of the container's pairs is on one switch. Any other value counts as "required". The annotation overrides
	// the daemons' --alignment, but lifts "required" only in the namespaces of Policy.OptOut.
	AlignmentKey = Domain + "/alignment"
	// DevicesKey has a scheduler's choice of devices for the pod, GPUs and VFs alike: comma-separated PCI
	// addresses or device IDs ("0000:11:00.0,0000:2f:00.0"). A container gets the first free devices, as many as
	// requested.
	DevicesKey = Domain + "/devices"
)

// choosers are the annotations with a scheduler's choice of devices. The first existing annotation counts.
var choosers = []struct {
	key  string
	read func(string) ([]string, error)
}{
	{DevicesKey, parseNames},
	// HAMi: UUIDs of the GPUs (pkg/device/devices.go, EncodePodSingleDevice).
	{"hami.io/vgpu-devices-allocated", parseHAMi},
	{"hami.io/amd-devices-allocated", parseHAMi},
	// Volcano's deviceshare plugin writes HAMi's format (pkg/scheduler/api/devices/nvidia/vgpu/utils.go).
	{"volcano.sh/vgpu-ids-new", parseHAMi},
	// Koordinator: PCI addresses of VFs (apis/extension/device_share.go, DeviceAllocations). Koordinator's
	// numbers of GPUs ("minor") have no meaning here: Tandem chooses GPUs next to the VFs.
	{"scheduling.koordinator.sh/device-allocated", parseKoordinator},
}

// annotationKeys are the keys of all annotations that are read.
var annotationKeys = func() []string {
	keys := []string{AlignmentKey}
	for _, chooser := range choosers {
		keys = append(keys, chooser.key)
	}
	return keys
}()

// Limits of a pod's annotations. A node has some hundred devices; the API server allows 256 KiB of
// annotations.
const (
	maxAnnotation = 16 << 10 // bytes of an annotation
	maxChosen     = 256      // devices
	maxName       = 128      // bytes of a device's name
)

// preferences are the contents of a pod's annotations.
type preferences struct {
	alignment Alignment // "" if equal to the policy's, or not annotated
	chosen    []string
	remarks   []string // about unreadable or forbidden annotations, for people
}

// readAnnotations returns the contents of annotations as far as the policy permits. An unreadable annotation
// has no effect but a remark.
func readAnnotations(namespace string, annotations map[string]string, policy Policy) (p preferences) {
	if text, ok := annotations[AlignmentKey]; ok {
		p.setAlignment(namespace, text, policy)
	}
	for _, chooser := range choosers {
		text, ok := annotations[chooser.key]
		if !ok {
			continue
		}
		chosen, err := chosenDevices(text, chooser.read, policy.Choose.Has(namespace))
		if err != nil {
			p.remarks = append(p.remarks, fmt.Sprintf("annotation %s: %v", chooser.key, err))
			continue
		}
		if len(chosen) > 0 {
			p.chosen = chosen
			break
		}
	}
	return p
}

// Relaxation is the part of a rejection that explains how the owner of a pod permits a degraded placement.
const Relaxation = "annotation " + AlignmentKey + ": " + string(Preferred) +
	", or none, allows a degraded placement; any other value counts as " + string(Required)

// AnnotatedAlignment returns the alignment in the text of an annotation, "" for an empty text. Any unknown
// text means Required, the stricter value: the author did not want the default. The error then lists the
// values.
func AnnotatedAlignment(text string) (Alignment, error) {
	var wanted Alignment
	if text == "" {
		return "", nil
	}
	if err := wanted.UnmarshalText([]byte(text)); err != nil {
		return Required, fmt.Errorf("annotation %s is %.40q, which counts as %s: %w", AlignmentKey, text, Required,
			err)
	}
	return wanted, nil
}

// setAlignment sets the alignment of an annotation if the value differs from the policy's.
func (p *preferences) setAlignment(namespace, text string, policy Policy) {
	wanted, err := AnnotatedAlignment(text)
	if err != nil {
		p.remarks = append(p.remarks, err.Error())
	}
	switch {
	case wanted == "", wanted == cmp.Or(policy.Alignment, Preferred):
	case wanted == Preferred && !policy.OptOut.Has(namespace):
		p.remarks = append(p.remarks,
			fmt.Sprintf("annotation %s: this node does not let namespace %s lift --alignment=%s",
				AlignmentKey, namespace, policy.Alignment))
	default:
		p.alignment = wanted
	}
}

// chosenDevices returns the devices of an annotation.
func chosenDevices(text string, read func(string) ([]string, error), allowed bool) ([]string, error) {
	if !allowed {
		return nil, errors.New("this node does not let the namespace choose devices")
	}
	if len(text) > maxAnnotation {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(text), maxAnnotation)
	}
	chosen, err := read(text)
	if err != nil {
		return nil, err
	}
	if len(chosen) > maxChosen {
		return nil, fmt.Errorf("it names %d devices, more than %d", len(chosen), maxChosen)
	}
	for _, name := range chosen {
		switch {
		case len(name) > maxName:
			return nil, fmt.Errorf("%.40q... has %d bytes, and a device's name at most %d", name, len(name), maxName)
		case strings.ContainsFunc(name, isForeign):
			return nil, fmt.Errorf("%.40q is no device's name", name)
		}
	}
	return chosen, nil
}

// isForeign reports whether no device's name has a character. The API server takes annotations of any bytes,
// and messages about decisions, which name devices, are text.
func isForeign(r rune) bool { return r <= ' ' || r > '~' }

// parseNames parses names that commas or white space separate.
func parseNames(text string) ([]string, error) {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' }),
		nil
}

// parseHAMi parses "uuid,type,memory,cores:" for each device, with ";" after each container.
func parseHAMi(text string) ([]string, error) {
	var ids []string
	for device := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ':' || r == ';' }) {
		fields := strings.Split(device, ",")
		if len(fields) < 4 || fields[0] == "" {
			return nil, fmt.Errorf("%.60q is not uuid,type,memory,cores", device)
		}
		ids = append(ids, fields[0])
	}
	return ids, nil
}

// parseKoordinator parses the addresses of VFs in
// {"rdma":[{"minor":0,"extension":{"vfs":[{"busID":"0000:01:00.2"}]}}]}.
func parseKoordinator(text string) ([]string, error) {
	var allocations struct {
		RDMA []struct {
			Extension struct {
				VFs []struct{ BusID string } `json:"vfs"`
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &allocations); err != nil {
		return nil, fmt.Errorf("not JSON as Koordinator writes it: %w", err)
	}
	var addresses []string
	for _, nic := range allocations.RDMA {
		for _, vf := range nic.Extension.VFs {
			if vf.BusID != "" {
				addresses = append(addresses, vf.BusID)
			}
		}
	}
	return addresses, nil
}

// AlignmentOf returns the alignment of a pod by the policy and the pod's annotations, and a remark about an
// annotation with an unknown value or without effect, "" for none.
func (p Policy) AlignmentOf(namespace string, annotations map[string]string) (Alignment, string) {
	var annotated preferences
	if text, ok := annotations[AlignmentKey]; ok {
		annotated.setAlignment(namespace, text, p)
	}
	return cmp.Or(annotated.alignment, p.Alignment, Preferred), strings.Join(annotated.remarks, "; ")
}

// Enforcement is the state of the enforcement of pods' annotations on this node, mainly of [AlignmentKey].
// Enforcement requires the answers of a source that lists pods with their annotations.
type Enforcement struct {
	Source Source // the source that answers; "" for none
	Why    string // reason for the lack of answers; "" for none
	// TooLarge means that the list of pods exceeds a limit: the reason remains until users delete pods.
	TooLarge bool
}

// Enforced reports whether annotations are enforced.
func (e Enforcement) Enforced() bool { return e.Source != "" }

// String returns a sentence for people.
func (e Enforcement) String() string {
	if e.Enforced() {
		return fmt.Sprintf("annotation %s is enforced on this node (source %s)", AlignmentKey, e.Source)
	}
	return fmt.Sprintf("annotation %s is not enforced on this node: %s", AlignmentKey, e.Why)
}

// enforcement is the latest Enforcement, by the last answers of the sources.
type enforcement struct {
	mu      sync.Mutex
	latest  Enforcement
	changed system.Signal
}

// updateEnforcement returns the Enforcement by the last answers of sources, and a channel that is closed
// after the next change.
func (e *enforcement) updateEnforcement(sources []*source) (Enforcement, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := enforcementOf(sources); now != e.latest {
		e.latest = now
		e.changed.Raise()
	}
	return e.latest, e.changed.Next()
}

// enforcementOf returns the Enforcement by the last answers of sources, best first.
func enforcementOf(sources []*source) Enforcement {
	if len(sources) == 0 {
		return Enforcement{Why: fmt.Sprintf("no source of --intent reads annotations: name %s or %s there",
			PodsAPI, Kubelet)}
	}
	var failures []string
	tooLarge := false
	for _, source := range sources {
		answered, failure := source.lastResult()
		switch {
		case answered && failure == nil:
			return Enforcement{Source: source.name}
		case answered:
			failures = append(failures, fmt.Sprintf("%s: %v", source.name, failure))
			tooLarge = tooLarge || errors.Is(failure, kubelet.ErrTooLarge)
		}
	}
	if len(failures) == 0 {
		return Enforcement{Why: "no source has answered yet"}
	}
	return Enforcement{Why: strings.Join(failures, "; "), TooLarge: tooLarge}
}
