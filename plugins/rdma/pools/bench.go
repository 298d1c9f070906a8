// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// Reasons that are not of the selector's making.
const (
	reasonNoDriver = "no driver"
	reasonNoRDMA   = "no RDMA device"
	reasonInUse    = "in use"
	reasonTaken    = "taken"
)

// reasons are all in the order in which people are told of them.
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

// sharedDevices is what configList calls the condition devices.
const sharedDevices = "deviceIDs"

// bench judges devices for one selector.
type bench struct {
	resource *ResourceConfig
	name     string
	selector *Selector
	needed   map[topology.Address]bool
	owners   map[string]string // resources of devices that are taken
}

// failure is one thing that keeps a device from being selected.
type failure struct{ key, why string }

// byName are the conditions that name devices: one that fails another condition alone is named.
var byName = []string{"pciAddresses", "acpiIndexes", "ifNames", "pfNames", "rootDevices"}

// withoutDriver are conditions that no device meets which has no driver.
var withoutDriver = []string{"drivers", "ifNames", "linkTypes", "pKeys", "isRdma"}

// failures is all that keeps a device from being selected.
func (b *bench) failures(f *function) (list []failure) {
	fail := func(is bool, key, why string) {
		if is {
			list = append(list, failure{key, why})
		}
	}
	shared := b.resource.DeviceType == SharedHCA
	owner := b.owners[f.id()]
	fail(f.Driver == "", reasonNoDriver, "it has no driver")
	fail(f.Driver != "" && shared && len(f.RDMA) == 0, reasonNoRDMA, "it has no RDMA device")
	fail(b.busy(f) && b.needed[f.Address], reasonInUse, "the node itself needs its netdev")
	fail(b.busy(f) && !b.needed[f.Address], reasonInUse, "it is a PF that has VFs")
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

// some are a few of the values that are wanted.
func some(values []string) string {
	const few = 4
	if more := len(values) - few; more > 0 {
		return fmt.Sprintf("%s or %d more", strings.Join(values[:few], ", "), more)
	}
	return strings.Join(values, " or ")
}

// busy reports whether a function is no candidate for netDevice, though it has a driver.
func (b *bench) busy(f *function) bool { return b.resource.DeviceType == NetDevice && f.inUse }

// offered reports whether a device is of the resource's type, in use or not, and not in it already.
func (b *bench) offered(f *function) bool {
	if b.owners[f.id()] == b.name {
		return false
	}
	switch b.resource.DeviceType {
	case AuxNetDevice:
		return f.aux != ""
	case Accelerator:
		return f.aux == "" && f.Class>>16 == acceleratorClass
	default:
		return f.aux == "" && f.Class.IsNetwork()
	}
}

// likely reports whether a device may be meant by the selector. A node's plain NICs are not meant by one that
// wants RDMA, nor PFs that have VFs, nor what has no driver, unless it is named and everything else is right.
func (b *bench) likely(f *function, failures []failure) bool {
	shared := b.resource.DeviceType == SharedHCA
	switch {
	case len(failures) == 0, f.aux != "", f.IsVF() && !shared, len(failures) == 1 && b.names(failures[0]):
		return true
	case f.Driver == "", b.busy(f) && !b.needed[f.Address]:
		return false
	default:
		return !b.selector.IsRDMA || f.isRDMA()
	}
}

// mostly reports whether a device is of the kind that such resources mostly have: HCAs are PFs, else VFs.
func (b *bench) mostly(f *function) bool { return f.IsVF() != (b.resource.DeviceType == SharedHCA) }

// names reports whether the selector names its devices, and a device that failed something failed not that.
func (b *bench) names(failed failure) bool {
	if failed.key == reasonNoDriver { // nor a netdev to be named by
		return len(b.selector.PCIAddresses) > 0
	}
	return len(b.selector.PCIAddresses)+len(b.selector.ifNames) > 0 && !slices.Contains(byName, failed.key)
}

// take makes a device the resource's. HCAs can be in several resources.
func (b *bench) take(f *function) {
	if b.resource.DeviceType != SharedHCA {
		b.owners[f.id()] = b.name
	}
}
