// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/spelling"
	"github.com/tandem-k8s/tandem/topology"
)

// Config is a configuration in the format of the stock SR-IOV network device plugin, of the RDMA shared
// device plugin or of both, read and checked.
type Config struct {
	File      string           // path, for messages
	Resources []ResourceConfig // in the order of the file; omitted ones are in Warnings
	Warnings  []string         // sentences about ignored settings
	// the interval of scans if changes are not reported; 0 for none
	Interval time.Duration
}

// labelResource names a resource for people, by its position in a list if it has no name.
func labelResource(resource string, position int, list string) string {
	if resource == "" {
		return fmt.Sprintf("resource %d of %s", position, list)
	}
	return fmt.Sprintf("resource %q", resource)
}

// checkNew returns an error for an invalid or duplicate name.
func (c *Config) checkNew(name string, r ResourceConfig) error {
	same := func(o ResourceConfig) bool { return o.Name == r.Name && o.Prefix == r.Prefix }
	switch {
	case r.Name == "":
		return errors.New(c.withWarnings(name + ": resourceName is missing"))
	case !stockName.MatchString(r.Name):
		return fmt.Errorf("%s: resourceName may have letters, digits, - and _", name)
	case slices.ContainsFunc(c.Resources, same):
		return fmt.Errorf("%s: resourceName is there twice", name)
	default:
		return nil
	}
}

// withWarnings completes the text about a missing key by the warnings, one of which may name the key,
// misspelt.
func (c *Config) withWarnings(text string) string {
	return strings.Join(slices.Concat([]string{text}, c.Warnings), "; ")
}

// addOwn adds the keys of a resource that only Tandem knows.
func (c *Config) addOwn(name string, raw, rawTandem json.RawMessage, r *ResourceConfig) {
	if err := json.Unmarshal(raw, &r.Health); err != nil {
		c.addWarning("%s: health is not checked: %v", name, explainError(err, raw))
		r.Health = Health{}
	}
	tandem, warnings := readTandem(rawTandem)
	r.Tandem = tandem
	c.warnAll(name+": ", warnings)
}

// readTandem reads the valid parts of the key "tandem".
func readTandem(raw json.RawMessage) (t Tandem, warnings []string) {
	if len(raw) == 0 {
		return t, nil
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return Tandem{}, []string{fmt.Sprintf("tandem is left out: %v", explainError(err, raw))}
	}
	for _, warning := range warnOfKeys(raw, reflect.TypeFor[Tandem](), "unknown and ignored") {
		warnings = append(warnings, "tandem: "+warning)
	}
	t.Variables = slices.DeleteFunc(t.Variables, func(variable string) bool {
		known := slices.Contains(PairVariables, variable)
		if !known {
			const unknown = "tandem: variables: %q is unknown and left out; want some of %s"
			warnings = append(warnings, fmt.Sprintf(unknown, variable, strings.Join(PairVariables, ", ")))
		}
		return !known
	})
	return t, warnings
}

func (c *Config) addWarning(format string, args ...any) {
	c.Warnings = append(c.Warnings, fmt.Sprintf(format, args...))
}

// warnAll adds warnings with a common beginning.
func (c *Config) warnAll(about string, warnings []string) {
	for _, warning := range warnings {
		c.Warnings = append(c.Warnings, about+warning)
	}
}

// warnUnknown warns of keys of a JSON object that are absent from the struct into; others are places to which
// such keys may belong.
func (c *Config) warnUnknown(where string, object json.RawMessage, into any, others ...place) {
	c.warnAll(where, warnOfKeys(object, reflect.TypeOf(into), "unknown and ignored", others...))
}

// Checks reports whether any resource wants a check of health.
func (c *Config) Checks(wanted func(Health) bool) bool {
	return slices.ContainsFunc(c.Resources, func(r ResourceConfig) bool { return wanted(r.Health) })
}

// Shares reports whether some of the resources share HCAs, and whether all do.
func (c *Config) Shares() (some, all bool) {
	shared := func(r ResourceConfig) bool { return r.DeviceType == SharedHCA }
	other := func(r ResourceConfig) bool { return !shared(r) }
	return slices.ContainsFunc(c.Resources, shared), !slices.ContainsFunc(c.Resources, other)
}

// explainError puts an error of encoding/json into words for people.
func explainError(err error, content []byte) error {
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		line := 1 + bytes.Count(content[:min(max(int(syntax.Offset)-1, 0), len(content))], []byte("\n"))
		return fmt.Errorf("not JSON: line %d: %w", line, err)
	case errors.As(err, &mismatch) && mismatch.Field == "":
		return fmt.Errorf("want %s, found %s", inWords(mismatch.Type), mismatch.Value)
	case errors.As(err, &mismatch):
		// embedded structs are part of the field's path
		key := mismatch.Field[strings.LastIndexByte(mismatch.Field, '.')+1:]
		return fmt.Errorf("%s: want %s, found %s", key, inWords(mismatch.Type), mismatch.Value)
	default:
		return err
	}
}

func inWords(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[exclusion]():
		return `true, false or "auto"`
	case t == reflect.TypeFor[vfItem](), t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "a whole number"
	case t.Kind() == reflect.Slice:
		return "a list"
	default:
		return "an object"
	}
}

// place lists keys that belong elsewhere, with the advice for such a key.
type place struct {
	keys []string
	move string
}

// warnOfKeys returns a warning for each key of a JSON object that the struct lacks, with the likely intended
// key.
func warnOfKeys(object json.RawMessage, into reflect.Type, text string, others ...place) (warnings []string) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) != nil {
		return nil
	}
	known := keysOf(into)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, key) }) {
			continue
		}
		warning := fmt.Sprintf("key %q is %s", key, text)
		if meant := meantKey(key, known, others); meant != "" {
			warning += ": " + meant
		}
		warnings = append(warnings, warning)
	}
	return warnings
}

// keysOf returns the keys that encoding/json reads into a struct, including those of embedded structs.
func keysOf(t reflect.Type) []string {
	var keys []string
	for _, field := range reflect.VisibleFields(t) {
		if tag := field.Tag.Get("json"); tag != "" && tag != "-" {
			keys = append(keys, tag)
		}
	}
	return keys
}

// meantKey returns the advice for an unknown key, "" if no key is similar.
func meantKey(key string, known []string, others []place) string {
	if nearest := spelling.Nearest(key, known); len(nearest) > 0 {
		return fmt.Sprintf("want %q", nearest[0])
	}
	for _, other := range others {
		if slices.ContainsFunc(other.keys, func(k string) bool { return strings.EqualFold(k, key) }) {
			return other.move
		}
	}
	return ""
}

// ResourceConfig is an element of resourceList or configList: a resource name and its devices.
type ResourceConfig struct {
	Name            string                       `json:"resourceName"`
	Prefix          string                       `json:"resourcePrefix"` // "" for that of the daemon
	DeviceType      DeviceType                   `json:"deviceType"`
	ExcludeTopology exclusion                    `json:"excludeTopology"` // do not publish the NUMA node
	AdditionalInfo  map[string]map[string]string `json:"additionalInfo"`  // PCI address or "*" to key and value
	// of AMD's network device plugin, which runs "nicctl clear rdma" on bare metal unless this is true; Tandem
	// never runs nicctl
	NoDeviceConfig bool `json:"disableDeviceConfig"`
	// alternatives; never empty
	Selectors []Selector `json:"-"`

	// Keys that the stock plugin lacks are parsed separately, so that mistakes affect nothing else.
	Health `json:"-"`
	Tandem Tandem `json:"-"` // key "tandem"

	// Of SharedHCA: how many containers may share an HCA, and the number of the first of its replicas.
	Replicas     int `json:"-"`
	firstReplica int
}

// Health has the optional signs of a device's health besides its existence. All are opt-in: a VF passes
// traffic to other VFs of its PF while the PF has no carrier, and the stock plugin checks none of them. The
// first two keys are those of the stock plugin's pull request 640, the last one is that of AMD's network
// device plugin.
type Health struct {
	CheckPF bool `json:"checkHealthOnPf"` // unhealthy while the PF's netdev has no carrier
	// accepted; a missing device is always unhealthy
	CheckDevice bool `json:"checkHealthOnDeviceExist"`
	CheckPort   bool `json:"checkHealthOnRdmaPort"` // unhealthy while port 1 of the RDMA device is not active
	// unhealthy while the metrics exporter reports so
	CheckExporter bool `json:"enableExporterHealthCheck"`
}

// Tandem are the keys of a resource that the stock plugin ignores: the description of pairs for the
// container. All are opt-in, and only this plugin provides them: if two plugins set a variable of the same
// name, the kubelet keeps one of both values.
type Tandem struct {
	Pairs bool `json:"pairs"` // mount /run/tandem/pairs.json, a pairs.File
	// Alias adds PCIDEVICE_… under a name that shells can read, with _ for characters other than letters and
	// digits.
	Alias     bool     `json:"alias"`
	Variables []string `json:"variables"` // some of PairVariables
	// AllHCAs gives a container all HCAs of a pool of shared HCAs, like the RDMA shared device plugin: for pods
	// that request one and expect all.
	AllHCAs bool `json:"allHCAs"`
}

// PairVariables are the supported variables, sorted. Package rdma documents their contents.
var PairVariables = []string{
	"NCCL_IB_HCA", "NVSHMEM_HCA_LIST", "UCX_NET_DEVICES",
	"VLLM_GPU_NIC_PCIE_MAPPING", "VLLM_NIC_SELECTION_VARS",
}

// stockName matches the names that the stock plugin accepts; it exits on other names (pkg/utils/utils.go,
// ValidResourceName).
var stockName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// MaxName is the maximum length of a resource's name part for the kubelet (qualifiedNameMaxLength in
// k8s.io/apimachinery/pkg/util/validation).
const MaxName = 63

// maxPrefix is the maximum length of a domain (IsDNS1123Subdomain, same place), less the "requests." that
// Kubernetes prepends to count a resource.
const maxPrefix = 253 - len("requests.")

// resourcePrefix matches the prefixes that the kubelet accepts (IsDNS1123Subdomain, same place).
var resourcePrefix = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// checkName returns an error for a name that the kubelet would reject (IsQualifiedName, same place).
func (r *ResourceConfig) checkName() error {
	switch {
	case len(r.Name) > MaxName:
		return fmt.Errorf("resourceName has %d characters; at most %d are allowed", len(r.Name), MaxName)
	case strings.Trim(r.Name, "-_") != r.Name:
		return errors.New("resourceName may have - and _, but not at its ends")
	case r.Prefix != "" && !resourcePrefix.MatchString(r.Prefix):
		return fmt.Errorf("resourcePrefix %q is not a lower-case domain name such as intel.com", r.Prefix)
	case len(r.Prefix) > maxPrefix:
		return fmt.Errorf("resourcePrefix has %d characters; at most %d are allowed", len(r.Prefix), maxPrefix)
	default:
		return nil
	}
}

// checkSelectors returns an error for selectors that the stock plugin rejects (ValidConfig of its device
// providers).
func (r *ResourceConfig) checkSelectors() error {
	for _, s := range r.Selectors {
		if s.IsRDMA && s.VDPAType != "" {
			return errors.New("selectors: isRdma and vdpaType exclude each other")
		}
		if r.DeviceType != AuxNetDevice {
			continue
		}
		if len(s.AuxTypes) == 0 {
			return fmt.Errorf("selectors: auxTypes is missing, which deviceType %s needs", AuxNetDevice)
		}
		for _, auxType := range s.AuxTypes {
			if auxType != "sf" {
				return fmt.Errorf("selectors: auxTypes: %q is unknown; want sf", auxType)
			}
		}
	}
	return nil
}

// exclusion is a value of excludeTopology: whether the NUMA nodes of a pool are withheld from the kubelet.
// The stock plugin knows true and false.
type exclusion string

// The values of excludeTopology.
const (
	Auto   exclusion = ""      // "auto", or no key: if the hints would cost admissions
	Never  exclusion = "false" // false
	Always exclusion = "true"  // true
)

// UnmarshalJSON reads true, false or "auto"; null changes nothing, as for every key.
func (e *exclusion) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "null":
	case "false":
		*e = Never
	case "true":
		*e = Always
	case `"auto"`:
		*e = Auto
	default:
		return &json.UnmarshalTypeError{Value: kindOf(text), Type: reflect.TypeFor[exclusion]()}
	}
	return nil
}

// kindOf names a JSON value as encoding/json does; a string is the value itself.
func kindOf(text []byte) string {
	switch text[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return string(text)
	default:
		return "number"
	}
}

// Decision is the decision about the hints of a pool.
type Decision struct {
	Hints bool
	Why   string // the rest of a sentence, after "because"
}

// String returns the decision for people.
func (d Decision) String() string {
	if d.Hints {
		return "excludeTopology auto: NUMA hints, because " + d.Why
	}
	return "excludeTopology auto: no NUMA hints, because " + d.Why
}

// Decided returns the pool after a decision about its hints.
func (p Pool) Decided(d Decision) Pool {
	p.Decision = d.String()
	if !d.Hints {
		p.Devices = slices.Clone(p.Devices)
		for i := range p.Devices {
			p.Devices[i].NUMA = topology.NUMANode{}
		}
	}
	return p
}
