package pools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
)

// DeviceType is a kind of device that a resource can be made of.
type DeviceType string

// The device types of the stock plugin.
const (
	NetDevice    DeviceType = "netDevice"    // network functions (PCI class 02), the default
	Accelerator  DeviceType = "accelerator"  // processing accelerators (PCI class 12)
	AuxNetDevice DeviceType = "auxNetDevice" // sub-functions of network functions
)

// Selector says which devices belong to a resource: those that meet every condition it has. A list is a
// condition that is met by any of its values; an empty one is none. The keys are those of pkg/types/types.go
// of the stock plugin; which of them count depends on the device type, the others are ignored.
type Selector struct {
	functionSelector
	addressSelector
	networkSelector
	vfSelector
	sfSelector

	ifNames []string // the function's own first netdev; of SharedHCA
}

// functionSelector has the conditions for any device; those of a sub-function are about the function it hangs
// on. Values are compared as sysfs prints them: lower case, four digits, without 0x.
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
	// netdev of the PF, with the indexes of VFs or the numbers of sub-functions
	PFNames      []vfItem `json:"pfNames"`
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
	// functions with a vDPA device for virtio or vhost, which the container gets too
	VDPAType string `json:"vdpaType"`
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

// parseSelectors reads the key "selectors": one object, or a list of them. Without it, every function is
// selected.
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

// selectorWarnings tells what in a resource's selectors has no effect, or less than was meant.
func selectorWarnings(t DeviceType, selectors []Selector, raw json.RawMessage) (warnings []string) {
	if objects, err := selectorObjects(raw); err == nil {
		known := reflect.TypeOf((&Selector{}).keys(t)).Elem()
		for _, object := range objects {
			text := fmt.Sprintf("unknown for deviceType %s and ignored", t)
			warnings = append(warnings, ignored(object, known, text, besideThem)...)
		}
	}
	for i := range selectors {
		warnings = append(warnings, selectors[i].warnings()...)
	}
	return warnings
}

func (s *Selector) warnings() []string {
	warnings := slices.Concat(problems("pfNames", s.PFNames), problems("rootDevices", s.RootDevices))
	if len(s.LinkTypes) > 1 {
		warnings = append(warnings, "linkTypes should have a single value")
	}
	if _, ok := sysfs.VDPADrivers[s.VDPAType]; s.VDPAType != "" && !ok {
		const unknown = "vdpaType %q is unknown, want virtio or vhost: no device is selected"
		warnings = append(warnings, fmt.Sprintf(unknown, s.VDPAType))
	}
	return warnings
}

func problems(key string, items []vfItem) (warnings []string) {
	for _, item := range items {
		if item.problem != nil {
			warnings = append(warnings, fmt.Sprintf("%s: %q: %v", key, item.text, item.problem))
		}
	}
	return warnings
}
