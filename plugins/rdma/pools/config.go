package pools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Config is a configuration in the format of the stock SR-IOV network device plugin, of the RDMA shared
// device plugin or of both, read and checked.
type Config struct {
	File      string           // where it was read from, for messages
	Resources []ResourceConfig // in the order of the file; what was left out of it is in Warnings
	Warnings  []string         // sentences about what the file says and this plugin does not follow
	// the pause between two looks at the machine where nothing tells of a change; 0 for none
	Interval time.Duration
}

// InvalidError is an error about a configuration that was understood: names and selectors that cannot be. The
// stock plugin ends in failure over these alone; without a configuration that it can read it ends as if all
// were done.
type InvalidError struct{ err error }

func (e *InvalidError) Error() string { return e.err.Error() }
func (e *InvalidError) Unwrap() error { return e.err }

func invalid(format string, args ...any) error { return &InvalidError{fmt.Errorf(format, args...)} }

// ReadConfig reads a configuration file with the semantics of encoding/json, as the stock plugin does: keys
// are matched whatever their case (the SR-IOV network operator writes "IsRdma"), unknown ones are ignored
// with a warning. An error is one sentence that names the file and, where there is one, the resource and the
// key. What makes the stock plugin leave out a single resource is a warning here too, unless nothing is left.
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

// Default is the configuration of a node that has none: all VFs with RDMA, and the NICs with RDMA that have
// none, as one resource.
func Default() *Config {
	const builtIn = `{"resourceList": [{"resourceName": "rdma_vf", "resourcePrefix": "tandem.dev", ` +
		`"selectors": {"isRdma": true}}]}`
	c, err := parseConfig("(built in)", []byte(builtIn))
	if err != nil {
		panic(err) // it is a constant
	}
	return c
}

func parseConfig(file string, content []byte) (*Config, error) {
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, errors.New(`the file is empty; want {"resourceList": [...]}`)
	}
	var top struct {
		ResourceList []json.RawMessage `json:"resourceList"`
		sharedList
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
	if err := c.addShared(top.sharedList); err != nil {
		return nil, err
	}
	if len(top.ResourceList)+len(top.ConfigList) == 0 {
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
	name := label(r.Name, position, "resourceList")
	if err != nil {
		return fmt.Errorf("%s: %w", name, explain(err, raw))
	}
	if r.DeviceType == "" {
		r.DeviceType = NetDevice
	}
	if !slices.Contains([]DeviceType{NetDevice, Accelerator, AuxNetDevice}, r.DeviceType) {
		return fmt.Errorf("%s: deviceType %q is unknown; want %s, %s or %s",
			name, r.DeviceType, NetDevice, Accelerator, AuxNetDevice)
	}
	if err := c.checkNew(name, r.ResourceConfig); err != nil {
		return err
	}
	c.warnUnknown(name+": ", raw, r, intoSelectors)
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
	c.warnAll(name+": selectors: ", selectorWarnings(r.DeviceType, r.Selectors, r.RawSelectors))
	c.addOwn(name, raw, r.RawTandem, &r.ResourceConfig)
	c.Resources = append(c.Resources, r.ResourceConfig)
	return nil
}

// label names a resource to people, by its position in a list where it has no name.
func label(resource string, position int, list string) string {
	if resource == "" {
		return fmt.Sprintf("resource %d of %s", position, list)
	}
	return fmt.Sprintf("resource %q", resource)
}

// checkNew refuses a resource whose name cannot be, or is there already.
func (c *Config) checkNew(name string, r ResourceConfig) error {
	same := func(o ResourceConfig) bool { return o.Name == r.Name && o.Prefix == r.Prefix }
	switch {
	case r.Name == "":
		return invalid("%s: resourceName is missing", name)
	case !stockName.MatchString(r.Name):
		return invalid("%s: resourceName may have letters, digits, - and _", name)
	case slices.ContainsFunc(c.Resources, same):
		return invalid("%s: resourceName is there twice", name)
	default:
		return nil
	}
}

// addOwn adds the keys of a resource that the stock plugins do not have.
func (c *Config) addOwn(name string, raw, rawTandem json.RawMessage, r *ResourceConfig) {
	if err := json.Unmarshal(raw, &r.Health); err != nil {
		c.warn("%s: health is not checked: %v", name, explain(err, raw))
		r.Health = Health{}
	}
	tandem, warnings := readTandem(rawTandem)
	r.Tandem = tandem
	c.warnAll(name+": ", warnings)
}

func (c *Config) warn(format string, args ...any) {
	c.Warnings = append(c.Warnings, fmt.Sprintf(format, args...))
}

// warnAll adds warnings about one thing, which they follow.
func (c *Config) warnAll(about string, warnings []string) {
	for _, warning := range warnings {
		c.Warnings = append(c.Warnings, about+warning)
	}
}

// warnUnknown warns of the keys of a JSON object that the struct it was read into does not have; others are
// places where they may belong.
func (c *Config) warnUnknown(where string, object json.RawMessage, into any, others ...place) {
	c.warnAll(where, ignored(object, reflect.TypeOf(into), "unknown and ignored", others...))
}

// Checks reports whether any resource wants a check of health.
func (c *Config) Checks(wanted func(Health) bool) bool {
	return slices.ContainsFunc(c.Resources, func(r ResourceConfig) bool { return wanted(r.Health) })
}
