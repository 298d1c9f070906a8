// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Domain is that of Tandem's labels and annotations.
const Domain = "tandem.dev"

// Tandem's annotations of a pod.
const (
	// AlignmentKey is "required" or "preferred": whether a container is refused when its pairs are not all on
	// one switch each. Any other value counts as "required". The annotation overrides the daemons' --alignment,
	// but lifts "required" only in the namespaces that an administrator names.
	AlignmentKey = Domain + "/alignment"
	// DevicesKey has the devices that a scheduler chose for the pod, GPUs and VFs alike: PCI addresses or device
	// IDs with commas between ("0000:11:00.0,0000:2f:00.0"). A container takes from it, in this order, as many
	// as it asks for of those that are free.
	DevicesKey = Domain + "/devices"
)

// Alignment says whether a container may have pairs that are not on one switch.
type Alignment string

// The two alignments.
const (
	Preferred Alignment = "preferred"
	Required  Alignment = "required"
)

// MarshalText prints the alignment as flag and annotation spell it.
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

// choosers are the annotations with devices that a scheduler chose, the first that is there counts.
var choosers = []struct {
	key  string
	read func(string) ([]string, error)
}{
	{DevicesKey, list},
	// HAMi: UUIDs of the GPUs (pkg/device/devices.go, EncodePodSingleDevice).
	{"hami.io/vgpu-devices-allocated", hami},
	{"hami.io/amd-devices-allocated", hami},
	// Volcano's deviceshare plugin writes HAMi's format (pkg/scheduler/api/devices/nvidia/vgpu/utils.go).
	{"volcano.sh/vgpu-ids-new", hami},
	// Koordinator: PCI addresses of VFs (apis/extension/device_share.go, DeviceAllocations). It names GPUs by a
	// number of its own agent's ("minor"), which says nothing here: they are chosen beside the VFs.
	{"scheduling.koordinator.sh/device-allocated", koordinator},
}

// What a pod's annotations may say. A node has some hundred devices; the API server lets annotations be 256
// KiB long.
const (
	maxAnnotation = 16 << 10 // bytes of one that is read
	maxChosen     = 256      // devices
	maxName       = 128      // bytes of a device's name
)

// readAnnotations takes over what the pod's annotations say, as far as the policy lets them. One that cannot
// be read is as if it were not there, with a remark.
func (p *Pod) readAnnotations(annotations map[string]string, policy Policy) {
	if text, ok := annotations[AlignmentKey]; ok {
		p.align(text, policy)
	}
	for _, chooser := range choosers {
		text, ok := annotations[chooser.key]
		if !ok {
			continue
		}
		chosen, err := choose(text, chooser.read, policy.Choose.Has(p.Namespace))
		if err != nil {
			p.Remarks = append(p.Remarks, fmt.Sprintf("annotation %s: %v", chooser.key, err))
			continue
		}
		if len(chosen) > 0 {
			p.Chosen = chosen
			return
		}
	}
}

// Relaxation says, in a refusal, how the owner of a pod allows pairs that are not on one switch each.
const Relaxation = "annotation " + AlignmentKey + ": " + string(Preferred) +
	", or none, allows a degraded placement; any other value counts as " + string(Required)

// AnnotatedAlignment returns the alignment that the text of an annotation asks for; an empty text asks for
// none, "". A text that is neither of the two asks for Required, the stricter one: its author wanted
// something else than the default. The error then names the values that there are.
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

// align takes the alignment over that an annotation asks for, where it differs from what every pod gets.
func (p *Pod) align(text string, policy Policy) {
	wanted, err := AnnotatedAlignment(text)
	if err != nil {
		p.Remarks = append(p.Remarks, err.Error())
	}
	switch {
	case wanted == "", wanted == cmp.Or(policy.Alignment, Preferred):
	case wanted == Preferred && !policy.OptOut.Has(p.Namespace):
		p.Remarks = append(p.Remarks,
			fmt.Sprintf("annotation %s: this node does not let namespace %s lift --alignment=%s",
				AlignmentKey, p.Namespace, policy.Alignment))
	default:
		p.Alignment = wanted
	}
}

// choose reads the devices that an annotation names.
func choose(text string, read func(string) ([]string, error), allowed bool) ([]string, error) {
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
		if len(name) > maxName {
			return nil, fmt.Errorf("%.40q... has %d bytes, and a device's name at most %d", name, len(name), maxName)
		}
	}
	return chosen, nil
}

// list reads names with commas or white space between.
func list(text string) ([]string, error) {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' }),
		nil
}

// hami reads "uuid,type,memory,cores:" for each device, with ";" after each container.
func hami(text string) ([]string, error) {
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

// koordinator reads the addresses of VFs from
// {"rdma":[{"minor":0,"extension":{"vfs":[{"busID":"0000:01:00.2"}]}}]}.
func koordinator(text string) ([]string, error) {
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

// AlignmentOf is the alignment of a pod, as far as the policy lets its annotations decide, and a remark, ""
// for none, where its annotation has an unknown value or is not heeded.
func (p Policy) AlignmentOf(namespace string, annotations map[string]string) (Alignment, string) {
	pod := Pod{Pod: kubelet.Pod{Namespace: namespace}}
	if text, ok := annotations[AlignmentKey]; ok {
		pod.align(text, p)
	}
	return cmp.Or(pod.Alignment, p.Alignment, Preferred), strings.Join(pod.Remarks, "; ")
}
