// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
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
	listed("vendors", func(s *Selector) []string { return s.Vendors }, vendorOf),
	listed("devices", func(s *Selector) []string { return s.Devices }, productOf),
	listed("drivers", func(s *Selector) []string { return s.Drivers }, driverOf),
	listed("pciAddresses", func(s *Selector) []string { return s.PCIAddresses }, addressOf),
	listed("acpiIndexes", func(s *Selector) []string { return s.ACPIIndexes }, acpiIndexOf),
	listed("auxTypes", func(s *Selector) []string { return s.AuxTypes }, auxTypeOf),
	listed("ifNames", func(s *Selector) []string { return s.ifNames }, (*function).netdev),
	ofPF("pfNames", func(s *Selector) []vfItem { return s.PFNames }, (*function).pfName),
	ofPF("rootDevices", func(s *Selector) []vfItem { return s.RootDevices }, pfAddressOf),
	listed("linkTypes", func(s *Selector) []string { return s.LinkTypes }, (*function).linkType),
	listed("ddpProfiles", func(s *Selector) []string { return s.DDPProfiles }, ddpProfileOf),
	listed("pKeys", func(s *Selector) []string { return s.PKeys }, (*function).pKey),
	listed("isRdma", func(s *Selector) []string { return optional(s.IsRDMA, "an RDMA device") }, rdmaText),
	listed("vdpaType", func(s *Selector) []string { return optional(s.VDPAType != "", s.VDPAType) }, vdpaTypeOf),
}

// optional returns a list of one value, or an empty list.
func optional(there bool, value string) []string {
	if !there {
		return nil
	}
	return []string{value}
}

// listed returns a condition that any value of a list fulfils. A function without a value never fulfils it.
// The value is read only if needed.
func listed(key string, wants func(*Selector) []string, has func(*function) string) condition {
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
		return allowsVF(items(s), pf, f)
	}}
}

func allowsVF(items []vfItem, pf func(*function) string, f *function) bool {
	if len(items) == 0 {
		return true
	}
	name := pf(f)
	if name == "" {
		return false
	}
	item, ok := naming(items, name)
	return ok && (item.all || item.holds(f.number()))
}

// selects reports whether a device meets every condition.
func (s *Selector) selects(f *function) bool {
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
func acpiIndexOf(f *function) string { return sysfs.Text(f.machine.sys, f.file("acpi_index")) }

// auxTypeOf returns the kind of an auxiliary device, "sf".
func auxTypeOf(f *function) string {
	if match := auxiliary.FindStringSubmatch(f.aux); match != nil {
		return match[1]
	}
	return ""
}

func pfAddressOf(f *function) string {
	if parent, ok := f.parent(); ok {
		return parent.String()
	}
	return ""
}

// ddpProfileOf returns the name of the NIC's DDP package.
func ddpProfileOf(f *function) string {
	if f.machine.ddp == nil {
		return ""
	}
	return f.machine.ddp(f.Address, f.Function())
}

func vdpaTypeOf(f *function) string { return f.machine.vdpaType(f.Address) }

func rdmaText(f *function) string {
	if f.isRDMA() {
		return "an RDMA device"
	}
	return ""
}
