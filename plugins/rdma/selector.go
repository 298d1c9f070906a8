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

// Selector says which devices belong to a resource: those that meet every condition it has. A list is a condition that
// is met by any of its values; an empty one is none. The keys are those of pkg/types/types.go of the stock plugin; which of
// them count depends on the device type, the others are ignored.
type Selector struct {
	functionSelector
	addressSelector
	networkSelector
	vfSelector
	sfSelector
}

// functionSelector has the conditions for any device; those of a sub-function are about the function it hangs on. Values are
// compared as sysfs prints them: lower case, four digits, without 0x.
type functionSelector struct {
	Vendors []string `json:"vendors"`
	Devices []string `json:"devices"`
	Drivers []string `json:"drivers"`
}

// addressSelector is for PCI functions.
type addressSelector struct {
	PCIAddresses []string `json:"pciAddresses"`
}

// networkSelector is for netDevice and auxNetDevice.
type networkSelector struct {
	PFNames      []vfItem `json:"pfNames"`      // netdev of the PF, with the indexes of VFs or the numbers of sub-functions
	RootDevices  []vfItem `json:"rootDevices"`  // address of the PF, likewise
	LinkTypes    []string `json:"linkTypes"`    // ether, infiniband
	IsRDMA       bool     `json:"isRdma"`       // devices with an RDMA device, which the container gets too
	NeedVhostNet bool     `json:"needVhostNet"` // the container gets /dev/vhost-net and /dev/net/tun too
}

// vfSelector is for netDevice.
type vfSelector struct {
	ACPIIndexes []string `json:"acpiIndexes"` // acpi_index of the function
	DDPProfiles []string `json:"ddpProfiles"` // of Intel NICs: the name of the loaded DDP package
	PKeys       []string `json:"pKeys"`       // partition key 0 of port 1, InfiniBand only
	VDPAType    string   `json:"vdpaType"`    // functions with a vDPA device for virtio or vhost, which the container gets too
}

// sfSelector is for auxNetDevice.
type sfSelector struct {
	AuxTypes []string `json:"auxTypes"` // sf
}

// keys is the part of the selector that counts for a device type, to be read from JSON.
func (s *Selector) keys(t DeviceType) any {
	switch t {
	case Accelerator:
		return &struct {
			*functionSelector
			*addressSelector
		}{&s.functionSelector, &s.addressSelector}
	case AuxNetDevice:
		return &struct {
			*functionSelector
			*networkSelector
			*sfSelector
		}{&s.functionSelector, &s.networkSelector, &s.sfSelector}
	default:
		return &struct {
			*functionSelector
			*addressSelector
			*networkSelector
			*vfSelector
		}{&s.functionSelector, &s.addressSelector, &s.networkSelector, &s.vfSelector}
	}
}

// parseSelectors reads the key "selectors": one object, or a list of them. Without it, every function is selected.
func parseSelectors(t DeviceType, raw json.RawMessage) ([]Selector, error) {
	objects, err := selectorObjects(raw)
	if err != nil {
		return nil, err
	}
	selectors := make([]Selector, len(objects))
	for i, object := range objects {
		if err := json.Unmarshal(object, selectors[i].keys(t)); err != nil {
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
	if objects, err := selectorObjects(raw); err == nil {
		known := reflect.TypeOf((&Selector{}).keys(r.DeviceType)).Elem()
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
	if _, ok := vdpaDrivers[s.VDPAType]; s.VDPAType != "" && !ok {
		c.warn("%s: selectors: vdpaType %q is unknown, want virtio or vhost: no device is selected", name, s.VDPAType)
	}
}

func (c *Config) warnItems(name, key string, items []vfItem) {
	for _, item := range items {
		if item.problem != nil {
			c.warn("%s: selectors: %s: %q: %v", name, key, item.text, item.problem)
		}
	}
}

// selects reports whether a device meets every condition. The order is that of the stock plugin
// (GetFilteredDevices in pkg/netdevice/netDeviceProvider.go), the cheap ones first.
func (s *Selector) selects(f *function) bool {
	return allows(s.Vendors, f.vendor) &&
		allows(s.Devices, f.product) &&
		allows(s.Drivers, f.driver) &&
		allows(s.PCIAddresses, f.address) &&
		allows(s.ACPIIndexes, f.acpiIndex) &&
		allows(s.AuxTypes, f.auxType) &&
		allowsVF(s.PFNames, f.pfName, f) &&
		allowsVF(s.RootDevices, f.pfAddress, f) &&
		allows(s.LinkTypes, f.linkType) &&
		allows(s.DDPProfiles, f.ddpProfile) &&
		allows(s.PKeys, f.pKey) &&
		(!s.IsRDMA || f.isRDMA()) &&
		(s.VDPAType == "" || f.vdpaType() == s.VDPAType)
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
