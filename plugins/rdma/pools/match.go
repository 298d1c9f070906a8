// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// condition is a condition of selectors.
type condition struct {
	key   string
	wants func(*Selector) []string // the accepted values; empty without the condition
	has   func(*function) string   // the value of a device
	meets func(*Selector, *function) bool
}

// conditions are looked at in the order of the stock plugin (GetFilteredDevices in
// pkg/netdevice/netDeviceProvider.go), the cheap ones first.
var conditions = []condition{
	anyOf("vendors", func(s *Selector) []string { return s.Vendors }, vendorOf),
	anyOf("devices", func(s *Selector) []string { return s.Devices }, productOf),
	anyOf("drivers", func(s *Selector) []string { return s.Drivers }, driverOf),
	anyOf("pciAddresses", func(s *Selector) []string { return s.PCIAddresses }, addressOf),
	anyOf("acpiIndexes", func(s *Selector) []string { return s.ACPIIndexes }, acpiIndexOf),
	anyOf("auxTypes", func(s *Selector) []string { return s.AuxTypes }, auxTypeOf),
	anyOf("ifNames", func(s *Selector) []string { return s.ifNames }, (*function).firstNetdev),
	ofPF("pfNames", func(s *Selector) []vfItem { return s.PFNames }, (*function).pfName),
	ofPF("rootDevices", func(s *Selector) []vfItem { return s.RootDevices }, pfAddressOf),
	anyOf("linkTypes", func(s *Selector) []string { return s.LinkTypes }, (*function).linkType),
	anyOf("ddpProfiles", func(s *Selector) []string { return s.DDPProfiles }, ddpProfileOf),
	anyOf("pKeys", func(s *Selector) []string { return s.PKeys }, (*function).pKey),
	anyOf("isRdma", func(s *Selector) []string { return oneIf(s.IsRDMA, "an RDMA device") }, rdmaText),
	anyOf("vdpaType", func(s *Selector) []string { return oneIf(s.VDPAType != "", s.VDPAType) }, vdpaTypeOf),
}

// oneIf returns a list of one value, or an empty list.
func oneIf(there bool, value string) []string {
	if !there {
		return nil
	}
	return []string{value}
}

// anyOf returns a condition that any value of a list fulfils. A function without a value never fulfils
// it. The value is read only if needed.
func anyOf(key string, wants func(*Selector) []string, has func(*function) string) condition {
	return condition{key, wants, has, func(s *Selector, f *function) bool {
		list := wants(s)
		if len(list) == 0 {
			return true
		}
		v := has(f)
		return v != "" && slices.Contains(list, v)
	}}
}

// ofPF returns a condition on the PF of a VF and its index.
func ofPF(key string, items func(*Selector) []vfItem, pf func(*function) string) condition {
	wants := func(s *Selector) (texts []string) {
		for _, item := range items(s) {
			texts = append(texts, item.text)
		}
		return texts
	}
	has := func(f *function) string {
		name := pf(f)
		if index := f.number(); name != "" && index >= 0 {
			return fmt.Sprintf("%s#%d", name, index)
		}
		return name
	}
	return condition{key, wants, has, func(s *Selector, f *function) bool {
		list := items(s)
		if len(list) == 0 {
			return true
		}
		name := pf(f)
		item, ok := findItem(list, name)
		return name != "" && ok && item.hasIndex(f.number())
	}}
}

// isMetBy reports whether a device meets every condition.
func (s *Selector) isMetBy(f *function) bool {
	for i := range conditions {
		if !conditions[i].meets(s, f) {
			return false
		}
	}
	return true
}

func vendorOf(f *function) string    { return fmt.Sprintf("%04x", f.Vendor) }
func productOf(f *function) string   { return fmt.Sprintf("%04x", f.Product) }
func driverOf(f *function) string    { return f.Driver }
func addressOf(f *function) string   { return f.Address.String() }
func acpiIndexOf(f *function) string { return ReadText(f.machine.Sys, f.file("acpi_index")) }

// auxTypeOf returns the kind of an auxiliary device, "sf".
func auxTypeOf(f *function) string {
	if match := auxiliary.FindStringSubmatch(f.aux); match != nil {
		return match[1]
	}
	return ""
}

func pfAddressOf(f *function) string {
	if parent, ok := f.parentFunction(); ok {
		return parent.String()
	}
	return ""
}

// ddpProfileOf returns the name of the NIC's DDP package.
func ddpProfileOf(f *function) string {
	if f.machine.DDP == nil {
		return ""
	}
	return f.machine.DDP(f.Address, f.Function())
}

func vdpaTypeOf(f *function) string {
	if f.machine.vdpa == nil {
		f.machine.vdpa = VDPADevices(f.machine.Sys)
	}
	return f.machine.vdpa[f.Address.String()].Kind
}

func rdmaText(f *function) string {
	if f.isRDMA() {
		return "an RDMA device"
	}
	return ""
}

// Reasons other than the conditions of a selector.
const (
	reasonNoDriver = "no driver"
	reasonNoRDMA   = "no RDMA device"
	reasonInUse    = "in use"
	reasonTaken    = "taken"
)

// reasons lists all reasons, in the order of the output.
var reasons = func() []string {
	keys := []string{reasonNoDriver, reasonNoRDMA, reasonInUse, reasonTaken}
	for _, c := range conditions {
		keys = append(keys, c.key)
		if c.key == "devices" {
			keys = append(keys, sharedDevices)
		}
	}
	return keys
}()

// isCondition reports whether a reason is a condition of a selector.
func isCondition(key string) bool {
	has := func(c condition) bool { return c.key == key }
	return key == sharedDevices || slices.ContainsFunc(conditions, has)
}

// sharedDevices is the name of the condition devices in configList.
const sharedDevices = "deviceIDs"

// matcher matches devices against one selector.
type matcher struct {
	resource *ResourceConfig
	name     string
	selector *Selector
	owners   map[string]string // resources of claimed devices
	drivers  []string          // the selector's drivers, with questions about unknown names
}

// failure is a reason against the selection of a device.
type failure struct{ key, why string }

// byName are the conditions that name devices. A device that fails only another condition is reported by
// name.
var byName = []string{"pciAddresses", "acpiIndexes", "ifNames", "pfNames", "rootDevices"}

// withoutDriver are conditions that devices without a driver always fail.
var withoutDriver = []string{"drivers", "ifNames", "linkTypes", "pKeys", "isRdma"}

// findFailures returns all reasons against the selection of a device.
func (b *matcher) findFailures(f *function) (list []failure) {
	fail := func(is bool, key, why string) {
		if is {
			list = append(list, failure{key, why})
		}
	}
	shared := b.resource.DeviceType == SharedHCA
	owner := b.owners[f.id()]
	fail(f.Driver == "", reasonNoDriver, "it has no driver")
	fail(f.Driver != "" && shared && len(f.RDMA) == 0, reasonNoRDMA, "it has no RDMA device")
	reserved := b.resource.whyReserved(f, b.selector)
	fail(f.Driver != "" && reserved != "", reasonInUse, reserved)
	fail(!shared && owner != "", reasonTaken, owner+" has it")
	for _, c := range conditions {
		implied := f.Driver == "" && slices.Contains(withoutDriver, c.key) || shared && c.key == "isRdma"
		if implied || c.meets(b.selector, f) {
			continue
		}
		key := c.key
		if shared && key == "devices" {
			key = sharedDevices
		}
		wanted := c.wants(b.selector)
		if key == "drivers" {
			wanted = b.drivers
		}
		fail(true, key, fmt.Sprintf("%s: want %s, it has %s", key, someValues(wanted), cmp.Or(c.has(f), "none")))
	}
	return list
}

// someValues formats the first few of the wanted values.
func someValues(values []string) string {
	const few = 4
	if more := len(values) - few; more > 0 {
		return fmt.Sprintf("%s or %d more", strings.Join(values[:few], ", "), more)
	}
	return strings.Join(values, " or ")
}

// isOffered reports whether a device has the resource's type, reserved or not, and is not yet in the
// resource.
func (b *matcher) isOffered(f *function) bool {
	return b.owners[f.id()] != b.name && f.isOf(b.resource.DeviceType)
}

// isLikely reports whether the selector may mean the device. A selector with RDMA does not mean plain NICs;
// PFs with VFs and devices without a driver are meant only if named and otherwise right.
func (b *matcher) isLikely(f *function, failures []failure) bool {
	shared := b.resource.DeviceType == SharedHCA
	switch {
	case len(failures) == 0, f.aux != "", f.IsVF() && !shared, len(failures) == 1 && b.namesDevices(failures[0]):
		return true
	case f.Driver == "", f.withVFs && b.resource.DeviceType == NetDevice:
		return false
	default:
		return !b.selector.IsRDMA || f.isRDMA()
	}
}

// isUsual reports whether a device is of the resource's usual kind: PFs for shared HCAs, else VFs.
func (b *matcher) isUsual(f *function) bool { return f.IsVF() != (b.resource.DeviceType == SharedHCA) }

// namesDevices reports whether the selector names its devices, and the device did not fail that condition.
func (b *matcher) namesDevices(failed failure) bool {
	if failed.key == reasonNoDriver { // nor a netdev to be named by
		return len(b.selector.PCIAddresses) > 0
	}
	return len(b.selector.PCIAddresses)+len(b.selector.ifNames) > 0 && !slices.Contains(byName, failed.key)
}

// claimDevice claims a device for the resource. HCAs can be in several resources.
func (b *matcher) claimDevice(f *function) {
	if b.resource.DeviceType != SharedHCA {
		b.owners[f.id()] = b.name
	}
}

// DeviceType is a kind of devices in a resource.
type DeviceType string

// The device types of the stock plugin.
const (
	NetDevice    DeviceType = "netDevice"    // network functions (PCI class 02), the default
	Accelerator  DeviceType = "accelerator"  // processing accelerators (PCI class 12)
	AuxNetDevice DeviceType = "auxNetDevice" // sub-functions of network functions
)

// SharedHCA is the device type of configList: an HCA, that is a network function with an RDMA device, that
// several containers use at a time. resourceList cannot use this type.
const SharedHCA DeviceType = "sharedHCA"

// describeDevices returns the device type in words.
func (t DeviceType) describeDevices() string {
	if t == AuxNetDevice {
		return "sub-function"
	}
	return "VF with a driver"
}

// Selector selects the devices that fulfil all of its conditions. Any value of a list fulfils the condition;
// an empty list is no condition. The keys are those of pkg/types/types.go of the stock plugin; each device
// type uses some and ignores the others.
type Selector struct {
	functionSelector
	addressSelector
	networkSelector
	vfSelector
	sfSelector

	ifNames []string // the function's own first netdev; of SharedHCA
}

// functionSelector has the conditions for any device; for a sub-function they apply to its parent. Values are
// compared in the format of sysfs: lower case, four digits, without 0x.
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

// keysOfType returns the part of the selector for a device type, as a target for JSON.
func (s *Selector) keysOfType(t DeviceType) any {
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
