package rdma

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Selector says which functions belong to a resource: those that meet every condition it has. A list is a condition that
// is met by any of its values; an empty one is none. The keys are those of pkg/types/types.go of the stock plugin.
type Selector struct {
	PCISelector
	ACPIIndexes  []string `json:"acpiIndexes"`  // acpi_index of the function
	PFNames      []vfItem `json:"pfNames"`      // netdev of the PF, with the indexes of VFs
	RootDevices  []vfItem `json:"rootDevices"`  // address of the PF, with the indexes of VFs
	LinkTypes    []string `json:"linkTypes"`    // ether, infiniband
	DDPProfiles  []string `json:"ddpProfiles"`  // not read yet: selects nothing
	PKeys        []string `json:"pKeys"`        // partition key 0 of port 1, InfiniBand only
	AuxTypes     []string `json:"auxTypes"`     // of auxNetDevice
	VDPAType     string   `json:"vdpaType"`     // not read yet: selects nothing
	IsRDMA       bool     `json:"isRdma"`       // functions with an RDMA device, which the container gets too
	NeedVhostNet bool     `json:"needVhostNet"` // the container gets /dev/vhost-net and /dev/net/tun too
}

// PCISelector has the conditions for any PCI function; of a selector for accelerators nothing else counts. Values are
// compared as sysfs prints them: lower case, four digits, without 0x.
type PCISelector struct {
	Vendors      []string `json:"vendors"`
	Devices      []string `json:"devices"`
	Drivers      []string `json:"drivers"`
	PCIAddresses []string `json:"pciAddresses"`
}

// parseSelectors reads the key "selectors": one object, or a list of them. Without it, every function is selected.
func parseSelectors(t DeviceType, raw json.RawMessage) ([]Selector, error) {
	objects, err := selectorObjects(raw)
	if err != nil {
		return nil, err
	}
	selectors := make([]Selector, len(objects))
	for i, object := range objects {
		var into any = &selectors[i]
		if t == Accelerator {
			into = &selectors[i].PCISelector
		}
		if err := json.Unmarshal(object, into); err != nil {
			return nil, fmt.Errorf("selectors: %w", explain(err, object))
		}
	}
	return selectors, nil
}

// selectorObjects splits what selectors says into its objects: one empty object where it is missing.
func selectorObjects(raw json.RawMessage) ([]json.RawMessage, error) {
	switch raw = bytes.TrimSpace(raw); {
	case len(raw) == 0, string(raw) == "null":
		return []json.RawMessage{[]byte("{}")}, nil
	case raw[0] != '[':
		return []json.RawMessage{raw}, nil
	}
	var objects []json.RawMessage
	if err := json.Unmarshal(raw, &objects); err != nil {
		return nil, fmt.Errorf("selectors: %w", explain(err, raw))
	}
	if len(objects) == 0 {
		return nil, errors.New("selectors: the list is empty")
	}
	if slices.ContainsFunc(objects, func(o json.RawMessage) bool { return string(o) == "null" }) {
		return nil, errors.New("selectors: the list contains null")
	}
	return objects, nil
}

// warnSelectors tells what in a resource's selectors has no effect, or less than was meant.
func (c *Config) warnSelectors(name string, r ResourceConfig, raw json.RawMessage) {
	if r.DeviceType == AuxNetDevice {
		c.warn("%s: deviceType %s is not supported yet: no device is offered", name, AuxNetDevice)
	}
	known := reflect.TypeFor[Selector]()
	if r.DeviceType == Accelerator {
		known = reflect.TypeFor[PCISelector]()
	}
	if objects, err := selectorObjects(raw); err == nil {
		for _, object := range objects {
			for _, key := range unknownKeys(object, known) {
				c.warn("%s: selectors: key %q is unknown for deviceType %s and ignored", name, key, r.DeviceType)
			}
		}
	}
	for i := range r.Selectors {
		c.warnSelector(name, &r.Selectors[i])
	}
}

func (c *Config) warnSelector(name string, s *Selector) {
	c.warnItems(name, "pfNames", s.PFNames)
	c.warnItems(name, "rootDevices", s.RootDevices)
	if len(s.LinkTypes) > 1 {
		c.warn("%s: selectors: linkTypes should have a single value", name)
	}
	if len(s.DDPProfiles) > 0 {
		c.warn("%s: selectors: ddpProfiles is not supported yet: no device is selected", name)
	}
	if s.VDPAType != "" {
		c.warn("%s: selectors: vdpaType is not supported yet: no device is selected", name)
	}
}

func (c *Config) warnItems(name, key string, items []vfItem) {
	for _, item := range items {
		if item.problem != nil {
			c.warn("%s: selectors: %s: %q: %v", name, key, item.text, item.problem)
		}
	}
}

// selects reports whether a function meets every condition. The order is that of the stock plugin
// (GetFilteredDevices in pkg/netdevice/netDeviceProvider.go), the cheap ones first.
func (s *Selector) selects(f *function) bool {
	return allows(s.Vendors, f.vendor) &&
		allows(s.Devices, f.product) &&
		allows(s.Drivers, f.driver) &&
		allows(s.PCIAddresses, f.address) &&
		allows(s.ACPIIndexes, f.acpiIndex) &&
		allowsVF(s.PFNames, f.pfName, f) &&
		allowsVF(s.RootDevices, f.pfAddress, f) &&
		allows(s.LinkTypes, f.linkType) &&
		len(s.DDPProfiles) == 0 &&
		allows(s.PKeys, f.pKey) &&
		(!s.IsRDMA || f.isRDMA()) &&
		s.VDPAType == ""
}

// allows reports whether a list has no condition, or the value of a function, which is read only if need be. A function
// without a value meets no condition.
func allows(list []string, value func() string) bool {
	if len(list) == 0 {
		return true
	}
	v := value()
	return v != "" && slices.Contains(list, v)
}

func allowsVF(items []vfItem, pf func() string, f *function) bool {
	if len(items) == 0 {
		return true
	}
	name := pf()
	if name == "" {
		return false
	}
	item, ok := naming(items, name)
	return ok && (item.all || item.holds(f.index()))
}

// unknownKeys lists the keys of a JSON object that a struct has no field for, sorted.
func unknownKeys(object json.RawMessage, into reflect.Type) []string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) != nil {
		return nil
	}
	var unknown []string
	for key := range fields {
		known := slices.ContainsFunc(keysOf(into), func(k string) bool { return strings.EqualFold(k, key) })
		if !known {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// keysOf lists the keys that encoding/json reads into a struct, those of embedded structs included.
func keysOf(t reflect.Type) []string {
	var keys []string
	for _, field := range reflect.VisibleFields(t) {
		if tag := field.Tag.Get("json"); tag != "" && tag != "-" {
			keys = append(keys, tag)
		}
	}
	return keys
}
