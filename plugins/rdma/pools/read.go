// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
)

// ReadConfig reads a configuration file with the semantics of encoding/json, like the stock plugin: keys
// match regardless of case (the SR-IOV network operator writes "IsRdma"), unknown keys are ignored with a
// warning. An error is one sentence with the file and, if applicable, the resource and the key. A mistake for
// which the stock plugin skips one resource is a warning, unless no resource remains.
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

// Default returns the configuration of a node without a file: all VFs with RDMA, and NICs with RDMA but
// without VFs, as one resource.
func Default() *Config {
	const builtIn = `{"resourceList": [{"resourceName": "rdma_vf", "resourcePrefix": "tandem.dev", ` +
		`"selectors": {"isRdma": true}}]}`
	c, err := parseConfig("(built in)", []byte(builtIn))
	if err != nil {
		panic(err) // the text is a constant
	}
	return c
}

// topLevel has the keys of a configuration, those of the RDMA shared device plugin
// (Mellanox/k8s-rdma-shared-dev-plugin, UserConfigList in pkg/types/types.go) among them.
type topLevel struct {
	ResourceList []json.RawMessage `json:"resourceList"`
	ConfigList   []json.RawMessage `json:"configList"`
	Interval     *int              `json:"periodicUpdateInterval"` // seconds; 0 for never
}

func parseConfig(file string, content []byte) (*Config, error) {
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, errors.New(`the file is empty; want {"resourceList": [...]}`)
	}
	var top topLevel
	if err := json.Unmarshal(content, &top); err != nil {
		return nil, explainError(err, content)
	}
	c := &Config{File: file}
	c.warnUnknown("", content, top)
	for i, raw := range top.ResourceList {
		if err := c.addResource(i+1, raw); err != nil {
			return nil, err
		}
	}
	if err := c.addShared(top); err != nil {
		return nil, err
	}
	if len(top.ResourceList)+len(top.ConfigList) == 0 {
		return nil, errors.New(c.withWarnings("resourceList is missing or empty"))
	}
	if len(c.Resources) == 0 {
		return nil, fmt.Errorf("no resource can be used: %s", strings.Join(c.Warnings, "; "))
	}
	return c, nil
}

// resource has the keys of an element of resourceList.
type resource struct {
	ResourceConfig
	RawSelectors json.RawMessage `json:"selectors"`
	RawTandem    json.RawMessage `json:"tandem"`
	// a field of the stock plugin's own, by its name of now and of earlier versions: the SR-IOV network operator
	// writes it too, with null, and nobody reads it
	SelectorObjs any `json:"selectorObjs"`
	SelectorObj  any `json:"selectorObj"`
}

// addResource checks the resource at a position of the list and appends it, or warns why the resource is
// skipped.
func (c *Config) addResource(position int, raw json.RawMessage) error {
	var r resource
	err := json.Unmarshal(raw, &r)
	name := labelResource(r.Name, position, "resourceList")
	if err != nil {
		return fmt.Errorf("%s: %w", name, explainError(err, raw))
	}
	r.DeviceType = cmp.Or(r.DeviceType, NetDevice)
	if !slices.Contains([]DeviceType{NetDevice, Accelerator, AuxNetDevice}, r.DeviceType) {
		return fmt.Errorf("%s: deviceType %q is unknown; want %s, %s or %s",
			name, r.DeviceType, NetDevice, Accelerator, AuxNetDevice)
	}
	c.warnUnknown(name+": ", raw, r, intoSelectors)
	if err := c.checkNew(name, r.ResourceConfig); err != nil {
		return err
	}
	if err := r.checkName(); err != nil {
		c.addWarning("%s is left out: %v", name, err)
		return nil
	}
	r.Selectors, err = parseSelectors(r.DeviceType, r.RawSelectors)
	if err != nil {
		c.addWarning("%s is left out: %v", name, err)
		return nil
	}
	if err := r.checkSelectors(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.warnAll(name+": selectors: ", selectorWarnings(r.DeviceType, r.Selectors, r.RawSelectors))
	c.addOwn(name, raw, r.RawTandem, &r.ResourceConfig)
	c.Resources = append(c.Resources, r.ResourceConfig)
	return nil
}

// Keys of selectors are often written into the resource, and vice versa.
var intoSelectors = place{keysOf(reflect.TypeFor[Selector]()), "put it into selectors"}

// parseSelectors parses the key "selectors": one object, or a list of objects. Without the key, every
// function is selected.
func parseSelectors(t DeviceType, raw json.RawMessage) ([]Selector, error) {
	objects, err := selectorObjects(raw)
	if err != nil {
		return nil, err
	}
	selectors := make([]Selector, len(objects))
	for i, object := range objects {
		if err := json.Unmarshal(object, selectors[i].keysOfType(t)); err != nil {
			return nil, fmt.Errorf("selectors: %w", explainError(err, object))
		}
	}
	return selectors, nil
}

// selectorObjects splits the key "selectors" into objects: one empty object if the key is missing.
func selectorObjects(raw json.RawMessage) ([]json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0, string(raw) == "null":
		return []json.RawMessage{[]byte("{}")}, nil
	case raw[0] != '[':
		return []json.RawMessage{raw}, nil
	}
	var objects []json.RawMessage
	if err := json.Unmarshal(raw, &objects); err != nil {
		return nil, fmt.Errorf("selectors: %w", explainError(err, raw))
	}
	if len(objects) == 0 {
		return nil, errors.New("selectors: the list is empty")
	}
	if slices.ContainsFunc(objects, func(o json.RawMessage) bool { return string(o) == "null" }) {
		return nil, errors.New("selectors: the list contains null")
	}
	return objects, nil
}

// besideThem is the place of a resource's key that was written into its selectors.
var besideThem = place{keysOf(reflect.TypeFor[ResourceConfig]()), "put it beside selectors, not into it"}

// selectorWarnings warns of settings in a resource's selectors without the intended effect.
func selectorWarnings(t DeviceType, selectors []Selector, raw json.RawMessage) (warnings []string) {
	if objects, err := selectorObjects(raw); err == nil {
		known := reflect.TypeOf((&Selector{}).keysOfType(t)).Elem()
		for _, object := range objects {
			text := fmt.Sprintf("unknown for deviceType %s and ignored", t)
			warnings = append(warnings, warnOfKeys(object, known, text, besideThem)...)
		}
	}
	for i := range selectors {
		warnings = append(warnings, selectors[i].findOddities("devices")...)
	}
	return warnings
}

// findOddities returns what is odd in a selector; products is the key of the device numbers.
func (s *Selector) findOddities(products string) []string {
	warnings := slices.Concat(listProblems("pfNames", s.PFNames), listProblems("rootDevices", s.RootDevices),
		s.findImpossible(products))
	if len(s.LinkTypes) > 1 {
		warnings = append(warnings, "linkTypes should have a single value")
	}
	return warnings
}

func listProblems(key string, items []vfItem) (warnings []string) {
	for _, item := range items {
		if item.problem != nil {
			warnings = append(warnings, fmt.Sprintf("%s: %q: %v", key, item.text, item.problem))
		}
	}
	return warnings
}

// Defaults of the RDMA shared device plugin: rdmaHcaResourcePrefix and defaultPeriodicUpdateInterval in
// pkg/resources/resources_manager.go.
const (
	sharedPrefix   = "rdma"
	sharedInterval = 60 // seconds
)

// sharedResource is an element of configList (UserConfig, same place), with Tandem's additional keys.
type sharedResource struct {
	Name       string          `json:"resourceName"`
	Prefix     string          `json:"resourcePrefix"`
	Max        int             `json:"rdmaHcaMax"`
	Devices    []string        `json:"devices"` // the older word for the selector ifNames
	Selectors  json.RawMessage `json:"selectors"`
	NoTopology exclusion       `json:"excludeTopology"` // as of a resource of resourceList
	Tandem     json.RawMessage `json:"tandem"`
	Health     `json:"-"`
}

// sharedSelector has the conditions for an HCA (Selectors, same place). Every list must be fulfilled, by any
// of its values.
type sharedSelector struct {
	Vendors   []string `json:"vendors"`
	DeviceIDs []string `json:"deviceIDs"`
	Drivers   []string `json:"drivers"`
	IfNames   []string `json:"ifNames"` // the HCA's first netdev
	LinkTypes []string `json:"linkTypes"`
}

// Keys of selectors are often written into the resource, and vice versa.
var (
	intoSharedSelectors = place{keysOf(reflect.TypeFor[sharedSelector]()), "put it into selectors"}
	besideSharedOnes    = place{
		keysOf(reflect.TypeFor[sharedResource]()), "put it beside selectors, not into it",
	}
)

// addShared adds the resources of configList. Mistakes in them make the stock plugin exit with a failure.
func (c *Config) addShared(list topLevel) error {
	switch {
	case list.ConfigList == nil:
		return nil
	case len(list.ConfigList) == 0:
		return errors.New("configList is empty")
	}
	seconds := sharedInterval
	if list.Interval != nil {
		seconds = *list.Interval
	}
	if seconds < 0 || seconds > math.MaxInt32 {
		return fmt.Errorf("periodicUpdateInterval is %d; want a number of seconds, or 0 for never", seconds)
	}
	c.Interval = time.Duration(seconds) * time.Second
	first := 0
	for i, raw := range list.ConfigList {
		r, err := c.readShared(i+1, raw)
		if err != nil {
			return err
		}
		r.firstReplica = first
		first += r.Replicas
		if err := r.checkName(); err != nil {
			c.addWarning("resource %q is left out: %v", r.Name, err)
			continue
		}
		c.Resources = append(c.Resources, r)
	}
	return nil
}

// readShared reads the resource at a position of configList.
func (c *Config) readShared(position int, raw json.RawMessage) (ResourceConfig, error) {
	var s sharedResource
	err := json.Unmarshal(raw, &s)
	name := labelResource(s.Name, position, "configList")
	if err != nil {
		return ResourceConfig{}, fmt.Errorf("%s: %w", name, explainError(err, raw))
	}
	r := ResourceConfig{
		Name: s.Name, Prefix: cmp.Or(s.Prefix, sharedPrefix), DeviceType: SharedHCA,
		ExcludeTopology: s.NoTopology, Replicas: s.Max,
	}
	c.warnUnknown(name+": ", raw, s, intoSharedSelectors)
	if err := c.checkNew(name, r); err != nil {
		return r, err
	}
	if s.Max < 0 || s.Max > math.MaxInt32 {
		return r, fmt.Errorf("%s: rdmaHcaMax is %d; want how many containers may share an HCA", name, s.Max)
	}
	if s.Max == 0 {
		c.addWarning("%s: rdmaHcaMax is 0 or missing: nothing is offered", name)
	}
	selector, err := s.newSelector(c, name)
	if err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	r.Selectors = []Selector{selector}
	c.addOwn(name, raw, s.Tandem, &r)
	if r.Tandem.Variables == nil && !r.Tandem.AllHCAs {
		r.Tandem.Variables = []string{"NCCL_IB_HCA"}
	}
	return r, nil
}

// newSelector returns the selector of the resource's HCAs. As in ValidateConfigs of the stock plugin exactly
// one of selectors and devices is required.
func (s *sharedResource) newSelector(c *Config, name string) (Selector, error) {
	var keys sharedSelector
	if len(s.Selectors) > 0 {
		if err := json.Unmarshal(s.Selectors, &keys); err != nil {
			return Selector{}, fmt.Errorf("selectors: %w", explainError(err, s.Selectors))
		}
		c.warnUnknown(name+": selectors: ", s.Selectors, keys, besideSharedOnes)
	}
	conditions := slices.Concat(keys.Vendors, keys.DeviceIDs, keys.Drivers, keys.IfNames, keys.LinkTypes)
	switch {
	case len(conditions) == 0 && len(s.Devices) == 0:
		return Selector{}, errors.New(`selectors is missing or empty; name what is shared, as {"ifNames": ["ib0"]}`)
	case len(conditions) > 0 && len(s.Devices) > 0:
		return Selector{}, errors.New("selectors and devices exclude each other: " +
			"put devices into selectors, as ifNames")
	case len(conditions) == 0:
		keys.IfNames = s.Devices
	}
	var selector Selector
	selector.functionSelector = functionSelector{
		Vendors: keys.Vendors, Devices: keys.DeviceIDs, Drivers: keys.Drivers,
	}
	selector.LinkTypes, selector.ifNames, selector.IsRDMA = keys.LinkTypes, keys.IfNames, true
	c.warnAll(name+": selectors: ", selector.findOddities(sharedDevices))
	return selector, nil
}
