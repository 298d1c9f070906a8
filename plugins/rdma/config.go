package rdma

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Config is a configuration in the format of the stock SR-IOV network device plugin, read and checked.
type Config struct {
	File      string           // where it was read from, for messages
	Resources []ResourceConfig // in the order of the file; what was left out of it is in Warnings
	Warnings  []string         // sentences about what the file says and this plugin does not follow
}

// ResourceConfig is one element of resourceList: which devices one resource name stands for.
type ResourceConfig struct {
	Name            string                       `json:"resourceName"`
	Prefix          string                       `json:"resourcePrefix"` // "" takes the daemon's
	DeviceType      DeviceType                   `json:"deviceType"`
	ExcludeTopology bool                         `json:"excludeTopology"` // tell nobody the NUMA node
	AdditionalInfo  map[string]map[string]string `json:"additionalInfo"`  // PCI address or "*" to key and value
	Selectors       []Selector                   `json:"-"`               // one that selects is enough; never empty

	// The keys that the stock plugin does not have are read apart: a mistake in them costs them alone.
	Health `json:"-"`
	Tandem Tandem `json:"-"` // key "tandem"
}

// DeviceType is a kind of device that a resource can be made of.
type DeviceType string

// The device types of the stock plugin.
const (
	NetDevice    DeviceType = "netDevice"    // network functions (PCI class 02), the default
	Accelerator  DeviceType = "accelerator"  // processing accelerators (PCI class 12)
	AuxNetDevice DeviceType = "auxNetDevice" // sub-functions of network functions
)

// InvalidError is an error about a configuration that was understood: names and selectors that cannot be. The stock plugin
// ends in failure over these alone; without a configuration that it can read it ends as if all were done.
type InvalidError struct{ err error }

func (e *InvalidError) Error() string { return e.err.Error() }
func (e *InvalidError) Unwrap() error { return e.err }

func invalid(format string, args ...any) error { return &InvalidError{fmt.Errorf(format, args...)} }

// ReadConfig reads a configuration file with the semantics of encoding/json, as the stock plugin does: keys are matched
// whatever their case (the SR-IOV network operator writes "IsRdma"), unknown ones are ignored with a warning. An error is
// one sentence that names the file and, where there is one, the resource and the key. What makes the stock plugin leave
// out a single resource is a warning here too, unless nothing is left.
func ReadConfig(path string) (*Config, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		var pathError *os.PathError
		if errors.As(err, &pathError) {
			err = pathError.Err
		}
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	c, err := parseConfig(path, content)
	if err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	return c, nil
}

func parseConfig(file string, content []byte) (*Config, error) {
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, errors.New(`the file is empty; want {"resourceList": [...]}`)
	}
	var top struct {
		ResourceList []json.RawMessage `json:"resourceList"`
	}
	if err := json.Unmarshal(content, &top); err != nil {
		return nil, explain(err, content)
	}
	c := &Config{File: file}
	c.warnUnknown("", content, top)
	for i, raw := range top.ResourceList {
		if err := c.add(i+1, raw); err != nil {
			return nil, err
		}
	}
	if len(top.ResourceList) == 0 {
		return nil, errors.New("resourceList is missing or empty")
	}
	if len(c.Resources) == 0 {
		return nil, fmt.Errorf("no resource can be used: %s", strings.Join(c.Warnings, "; "))
	}
	return c, nil
}

// add checks the resource at a position of the list and appends it, or warns why it is left out.
func (c *Config) add(position int, raw json.RawMessage) error {
	var r struct {
		ResourceConfig
		RawSelectors json.RawMessage `json:"selectors"`
		RawTandem    json.RawMessage `json:"tandem"`
	}
	err := json.Unmarshal(raw, &r)
	name := fmt.Sprintf("resource %q", r.Name)
	if r.Name == "" {
		name = fmt.Sprintf("resource %d of resourceList", position)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, explain(err, raw))
	}
	if r.DeviceType == "" {
		r.DeviceType = NetDevice
	}
	if !slices.Contains([]DeviceType{NetDevice, Accelerator, AuxNetDevice}, r.DeviceType) {
		return fmt.Errorf("%s: deviceType %q is unknown; want %s, %s or %s", name, r.DeviceType, NetDevice, Accelerator, AuxNetDevice)
	}
	switch {
	case r.Name == "":
		return invalid("%s: resourceName is missing", name)
	case !stockName.MatchString(r.Name):
		return invalid("%s: resourceName may have letters, digits, - and _", name)
	}
	if slices.ContainsFunc(c.Resources, func(o ResourceConfig) bool { return o.Name == r.Name && o.Prefix == r.Prefix }) {
		return invalid("%s: resourceName is there twice", name)
	}
	c.warnUnknown(name+": ", raw, r)
	if err := r.checkName(); err != nil {
		c.warn("%s is left out: %v", name, err)
		return nil
	}
	r.Selectors, err = parseSelectors(r.DeviceType, r.RawSelectors)
	if err != nil {
		c.warn("%s is left out: %v", name, err)
		return nil
	}
	if err := r.checkSelectors(); err != nil {
		return invalid("%s: %w", name, err)
	}
	c.warnSelectors(name, r.ResourceConfig, r.RawSelectors)
	if err := json.Unmarshal(raw, &r.Health); err != nil {
		c.warn("%s: health is not checked: %v", name, explain(err, raw))
		r.Health = Health{}
	}
	c.addTandem(name, &r.Tandem, r.RawTandem)
	c.Resources = append(c.Resources, r.ResourceConfig)
	return nil
}

// stockName is what the stock plugin accepts, and ends over anything else (pkg/utils/utils.go, ValidResourceName).
var stockName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// maxName is the longest name part of a resource that the kubelet accepts (qualifiedNameMaxLength in
// k8s.io/apimachinery/pkg/util/validation).
const maxName = 63

// maxPrefix is the longest name that a domain may have (IsDNS1123Subdomain, same place), less the "requests." that Kubernetes puts before
// it to count a resource.
const maxPrefix = 253 - len("requests.")

// resourcePrefix is what the kubelet accepts before the slash (IsDNS1123Subdomain, same place).
var resourcePrefix = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// checkName finds what the kubelet would refuse (IsQualifiedName, same place): that resource alone.
func (r *ResourceConfig) checkName() error {
	switch {
	case len(r.Name) > maxName:
		return fmt.Errorf("resourceName has %d characters; at most %d are allowed", len(r.Name), maxName)
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

// checkSelectors refuses what the stock plugin refuses (ValidConfig of its device providers).
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

func (c *Config) warn(format string, args ...any) {
	c.Warnings = append(c.Warnings, fmt.Sprintf(format, args...))
}

// warnUnknown warns of the keys of a JSON object that the struct it was read into does not have.
func (c *Config) warnUnknown(where string, object json.RawMessage, into any) {
	for _, key := range unknownKeys(object, reflect.TypeOf(into)) {
		c.warn("%skey %q is unknown and ignored", where, key)
	}
}

// addTandem reads the key "tandem" as far as it can be understood.
func (c *Config) addTandem(name string, t *Tandem, raw json.RawMessage) {
	if len(raw) == 0 {
		return
	}
	if err := json.Unmarshal(raw, t); err != nil {
		c.warn("%s: tandem is left out: %v", name, explain(err, raw))
		*t = Tandem{}
		return
	}
	c.warnUnknown(name+": tandem: ", raw, *t)
	t.Variables = slices.DeleteFunc(t.Variables, func(variable string) bool {
		_, known := pairVariables[variable]
		if !known {
			c.warn("%s: tandem: variables: %q is unknown and left out; want some of %s", name, variable,
				strings.Join(slices.Sorted(maps.Keys(pairVariables)), ", "))
		}
		return !known
	})
}

// explain puts an error of encoding/json into words for people.
func explain(err error, content []byte) error {
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		line := 1 + bytes.Count(content[:min(max(int(syntax.Offset)-1, 0), len(content))], []byte("\n"))
		return fmt.Errorf("not JSON: line %d: %w", line, err)
	case errors.As(err, &mismatch) && mismatch.Field == "":
		return fmt.Errorf("want %s, found %s", inWords(mismatch.Type), mismatch.Value)
	case errors.As(err, &mismatch):
		key := mismatch.Field[strings.LastIndexByte(mismatch.Field, '.')+1:] // embedded structs are part of the field's path
		return fmt.Errorf("%s: want %s, found %s", key, inWords(mismatch.Type), mismatch.Value)
	default:
		return err
	}
}

func inWords(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[vfItem](), t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice:
		return "a list"
	default:
		return "an object"
	}
}
