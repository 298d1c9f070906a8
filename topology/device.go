// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Address is the address of one PCI function: domain, bus, device and function ("BDF").
// An address is comparable and may be used as a map key.
type Address struct {
	Domain   uint32 // 0000 to ffffffff; more than four hex digits behind VMD and Hyper-V
	Bus      uint8  // 00 to ff
	Device   uint8  // 00 to 1f
	Function uint8  // 0 to 7
}

// ParseAddress reads an address in the kernel's format, "0000:81:00.0" (pci_setup_device in
// drivers/pci/probe.c: "%04x:%02x:%02x.%d"). The domain may have up to eight hex digits; upper case is
// accepted. The domain is never optional: two devices may differ only in the domain.
func ParseAddress(s string) (Address, error) {
	bad := func() (Address, error) {
		return Address{}, fmt.Errorf("parse PCI address %q: want domain:bus:device.function, as in 0000:81:00.0", s)
	}
	domain, rest, ok := strings.Cut(s, ":")
	bus, rest, ok2 := strings.Cut(rest, ":")
	device, function, ok3 := strings.Cut(rest, ".")
	if !ok || !ok2 || !ok3 || len(domain) < 4 || len(domain) > 8 || len(bus) != 2 || len(device) != 2 ||
		len(function) != 1 {
		return bad()
	}
	// A leading zero of a wide domain is an error, so that every address has a single notation.
	if len(domain) > 4 && domain[0] == '0' {
		return bad()
	}
	var a Address
	for _, f := range []struct {
		text string
		bits int
		set  func(uint64)
	}{
		{domain, 32, func(n uint64) { a.Domain = uint32(n) }},
		{bus, 8, func(n uint64) { a.Bus = uint8(n) }},
		{device, 5, func(n uint64) { a.Device = uint8(n) }},
		{function, 3, func(n uint64) { a.Function = uint8(n) }},
	} {
		n, err := strconv.ParseUint(f.text, 16, f.bits)
		if err != nil {
			return bad()
		}
		f.set(n)
	}
	return a, nil
}

// String returns the address in the kernel's format: lower case, the domain with at least four digits.
func (a Address) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%d", a.Domain, a.Bus, a.Device, a.Function)
}

// Compare orders addresses by domain, bus, device and function.
func (a Address) Compare(b Address) int {
	return cmp.Compare(a.number(), b.number())
}

// number returns all parts of an address in one number, which makes a comparison a single step: placement
// compares addresses ten thousand times.
func (a Address) number() uint64 {
	return uint64(a.Domain)<<24 | uint64(a.Bus)<<16 | uint64(a.Device)<<8 | uint64(a.Function)
}

// MarshalText returns the result of String, for JSON and YAML.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads an address like ParseAddress.
func (a *Address) UnmarshalText(text []byte) error {
	parsed, err := ParseAddress(string(text))
	if err != nil {
		return err
	}
	*a = parsed
	return nil
}

// Slot returns the address with function 0, which identifies the slot of a card.
func (a Address) Slot() Address {
	a.Function = 0
	return a
}

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
	Speed    float64 `json:"gts"` // transfers per second and lane, in GT/s
	MaxSpeed float64 `json:"maxGts"`
	Width    int     `json:"lanes"`
	MaxWidth int     `json:"maxLanes"`
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
	A     Address  `json:"a"`
	B     Address  `json:"b"`
	Type  LinkType `json:"type"`
	Hops  int      `json:"hops"`  // number of GPUs on the way, including the last one: 1 for neighbours
	Count int      `json:"count"` // parallel links between the two, 1 or more
}

// Unit is what a container has of the node by a device: a PCI function, or a part of a function. A unit has
// one container at a time, or several that all share the unit. Resource names and device IDs are names of a
// unit: after a change of the configuration, the same unit has other names.
type Unit struct {
	Name   string // "0000:0c:00.1", or of a part "0000:81:00.0/7-0"
	Shared bool   // by a replica of a GPU, or of an HCA
}

// NewUnit returns the unit of a function, or of its part: GPU instance and compute instance of a MIG device,
// index of a partition, name of a sub-function; "" for the whole function.
func NewUnit(function Address, part string, shared bool) Unit {
	unit := Unit{Name: function.String(), Shared: shared}
	if part != "" {
		unit.Name += "/" + part
	}
	return unit
}

// ParseUnit returns the function and the part in a unit's name, "" for the whole function, or an error for a
// name without an address.
func ParseUnit(name string) (function Address, part string, err error) {
	address, part, _ := strings.Cut(name, "/")
	function, err = ParseAddress(address)
	return function, part, err
}

// MIGFunction returns the function that a MIG device is a part of, false for any other unit. With MIG off,
// the node of the function gives a container with the part the whole GPU. A partition of an AMD GPU has a
// node of its own, and the function's is that of the first partition, however the card is partitioned.
func (u Unit) MIGFunction() (name string, isMIG bool) {
	name, part, _ := strings.Cut(u.Name, "/")
	gi, ci, isMIG := strings.Cut(part, "-")
	return name, isMIG && strings.Trim(gi+ci, "0123456789") == ""
}

// Overlaps reports whether one of two units is the other, or a MIG device of it.
func (u Unit) Overlaps(v Unit) bool {
	function, isMIG := u.MIGFunction()
	other, isOtherMIG := v.MIGFunction()
	return u.Name == v.Name || isMIG && function == v.Name || isOtherMIG && other == u.Name
}

// replicaMark is between the ID of a device and the number of a replica, as in the IDs of shared GPUs
// (NVIDIA/k8s-device-plugin, internal/rm/devices.go).
const replicaMark = "::"

// ReplicaID returns the kubelet's device ID of a replica: "0000:0c:00.0::3".
func ReplicaID(original string, number int) string {
	return fmt.Sprintf("%s%s%d", original, replicaMark, number)
}

// CutReplica returns the ID of the device of a replica; other IDs remain as they are.
func CutReplica(id string) (original string, replica bool) {
	original, _, replica = strings.Cut(id, replicaMark)
	return original, replica
}

// UnitOfID returns the unit of a device by the ID alone: of a device of another plugin, or of a plugin of an
// earlier version. A PCI address is a function; any other ID is no unit of this node's functions.
func UnitOfID(id string) Unit {
	original, shared := CutReplica(id)
	if function, err := ParseAddress(original); err == nil {
		original = function.String()
	}
	return Unit{original, shared}
}
