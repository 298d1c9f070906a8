// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

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
}

// failure is a reason against the selection of a device.
type failure struct{ key, why string }

// byName are the conditions that name devices. A device that fails only another condition is reported by
// name.
var byName = []string{"pciAddresses", "acpiIndexes", "ifNames", "pfNames", "rootDevices"}

// withoutDriver are conditions that devices without a driver always fail.
var withoutDriver = []string{"drivers", "ifNames", "linkTypes", "pKeys", "isRdma"}

// failures returns all reasons against the selection of a device.
func (b *matcher) failures(f *function) (list []failure) {
	fail := func(is bool, key, why string) {
		if is {
			list = append(list, failure{key, why})
		}
	}
	shared := b.resource.DeviceType == SharedHCA
	owner := b.owners[f.id()]
	fail(f.Driver == "", reasonNoDriver, "it has no driver")
	fail(f.Driver != "" && shared && len(f.RDMA) == 0, reasonNoRDMA, "it has no RDMA device")
	reserved := b.resource.reserved(f, b.selector)
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
		fail(true, key, fmt.Sprintf("%s: want %s, it has %s", key, some(c.wants(b.selector)),
			cmp.Or(c.has(f), "none")))
	}
	return list
}

// some formats the first few of the wanted values.
func some(values []string) string {
	const few = 4
	if more := len(values) - few; more > 0 {
		return fmt.Sprintf("%s or %d more", strings.Join(values[:few], ", "), more)
	}
	return strings.Join(values, " or ")
}

// offered reports whether a device has the resource's type, reserved or not, and is not yet in the resource.
func (b *matcher) offered(f *function) bool {
	return b.owners[f.id()] != b.name && f.isOf(b.resource.DeviceType)
}

// likely reports whether the selector may mean the device. A selector with RDMA does not mean plain NICs; PFs
// with VFs and devices without a driver are meant only if named and otherwise right.
func (b *matcher) likely(f *function, failures []failure) bool {
	shared := b.resource.DeviceType == SharedHCA
	switch {
	case len(failures) == 0, f.aux != "", f.IsVF() && !shared, len(failures) == 1 && b.names(failures[0]):
		return true
	case f.Driver == "", f.withVFs && b.resource.DeviceType == NetDevice:
		return false
	default:
		return !b.selector.IsRDMA || f.isRDMA()
	}
}

// mostly reports whether a device is of the resource's usual kind: PFs for shared HCAs, else VFs.
func (b *matcher) mostly(f *function) bool { return f.IsVF() != (b.resource.DeviceType == SharedHCA) }

// names reports whether the selector names its devices, and the device did not fail that condition.
func (b *matcher) names(failed failure) bool {
	if failed.key == reasonNoDriver { // nor a netdev to be named by
		return len(b.selector.PCIAddresses) > 0
	}
	return len(b.selector.PCIAddresses)+len(b.selector.ifNames) > 0 && !slices.Contains(byName, failed.key)
}

// take claims a device for the resource. HCAs can be in several resources.
func (b *matcher) take(f *function) {
	if b.resource.DeviceType != SharedHCA {
		b.owners[f.id()] = b.name
	}
}
