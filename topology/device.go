// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"slices"
)

// Class is a PCI class code in the format of sysfs: base class, sub-class, programming interface (0xBBSSPP).
// The codes are those of the kernel's include/linux/pci_ids.h.
type Class uint32

// Base and sub-classes that matter to placement.
const (
	baseNetwork     = 0x02
	baseDisplay     = 0x03
	baseBridge      = 0x06
	baseAccelerator = 0x12
)

// PortClass is the class of a PCI-to-PCI bridge (PCI_CLASS_BRIDGE_PCI).
const PortClass Class = baseBridge<<16 | 4<<8

// IsNetwork reports whether this is a network controller (base class 02), Ethernet and InfiniBand alike.
func (c Class) IsNetwork() bool { return c>>16 == baseNetwork }

// IsGPU reports whether a function of this class can be a GPU: a display controller (base class 03) or a
// processing accelerator (12), as MI200 and later. The vendor is also necessary: a BMC's VGA is a display
// controller.
func (c Class) IsGPU() bool { return c>>16 == baseDisplay || c>>16 == baseAccelerator }

func (c Class) isBridge() bool { return c>>16 == baseBridge }

// PCIeLink is the PCI Express link of a function; a zero field was not there to be read. Sources are the
// sysfs files current_link_speed, max_link_speed, current_link_width and max_link_width
// (Documentation/ABI/testing/sysfs-bus-pci).
type PCIeLink struct {
	Speed, MaxSpeed float64 // transfers per second and lane, in GT/s
	Width, MaxWidth int     // lanes
}

// Degraded reports whether the link is below its maximum speed or width. Unknown values do not count.
func (l PCIeLink) Degraded() bool { return l.Slow() || l.Narrow() }

// DegradedOf is Degraded for the link of a GPU or of another function. A GPU lowers the speed of its link
// while idle, so that only the width of the link counts.
func (l PCIeLink) DegradedOf(gpu bool) bool { return l.Narrow() || !gpu && l.Slow() }

// Slow reports whether the link has a lower speed than its maximum. Unknown values do not count.
func (l PCIeLink) Slow() bool { return l.Speed > 0 && l.Speed < l.MaxSpeed }

// Narrow reports whether the link has fewer lanes than its maximum. Unknown values do not count.
func (l PCIeLink) Narrow() bool { return l.Width > 0 && l.Width < l.MaxWidth }

// Device is one PCI function as sysfs shows it. The slices belong to the Tree: do not change them.
type Device struct {
	Address Address
	Class   Class  // 0 where the file is absent
	Vendor  uint16 // 0 where the file is absent
	Product uint16 // the file "device"; 0 where it is absent
	Driver  string // name of the driver it is bound to, "" for none
	NUMA    NUMANode
	PCIe    PCIeLink
	ACS     ACS       // of a bridge; unknown for anything else
	Control uint16    // ACS control register of a bridge; 0 if unknown, or without ACS
	ATS     bool      // the function has Address Translation Services; false if unknown
	V3      string    // VPD keyword, common to a DMA function and its PFs; "" if unknown (only root reads VPD)
	PF      Address   // of a VF: its PF (physfn); the zero Address for anything else
	VFs     []Address // of a PF: its VFs in the order of their index (virtfn0, virtfn1 …)
	// names of its network interfaces in this network namespace, sorted; without those that cannot be passed on:
	// see IsPassable
	Netdevs []string
	RDMA    []string // names of its RDMA devices (directory "infiniband"), sorted, likewise
	// ManagesNVSwitches: the function is the node's access to its NVSwitches and no NIC, although its IDs are
	// those of a NIC; false if unknown (only root reads VPD)
	ManagesNVSwitches bool

	rootComplex string    // "pci0000:80"
	bridges     []Address // from the root port down to the bridge right above
	moved       bool      // the place is that of Tree.Move, whatever DMA functions there are
}

// IsVF reports whether the function is an SR-IOV virtual function.
func (d *Device) IsVF() bool { return d.PF != Address{} }

// Function returns the function that is plugged in: the PF of a VF, otherwise the device's own address.
func (d *Device) Function() Address {
	if d.IsVF() {
		return d.PF
	}
	return d.Address
}

// RootComplex returns the name of the root complex in sysfs, "pci0000:80" (pci_register_host_bridge in
// drivers/pci/probe.c).
func (d *Device) RootComplex() string { return d.rootComplex }

// Bridges returns the bridges above the function, from the root port down; none on the root bus.
func (d *Device) Bridges() []Address { return slices.Clone(d.bridges) }

// LinkType is the kind of a direct connection between two GPUs.
type LinkType string

// The kinds of links.
const (
	XGMI   LinkType = "XGMI"
	NVLink LinkType = "NVLINK"
)

// Link is a direct connection between two GPUs, in both directions, in addition to PCI Express.
type Link struct {
	A, B  Address
	Type  LinkType
	Hops  int // number of GPUs on the way, including the last one: 1 for neighbours
	Count int // parallel links between the two, 1 or more
}
