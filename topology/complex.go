// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind is the way in which the GPUs and NICs of a [Complex] are near each other.
type Kind string

// The kinds of complexes.
const (
	// KindDMA: a DMA function (NVIDIA's Data Direct) beside the GPU reads and writes for a NIC elsewhere. The
	// NIC has the place of the function, its only place: one switch, one distance to each device. A NIC with a
	// GPU nearer than any GPU of the function keeps its own place and is not in the complex.
	KindDMA Kind = "dma"
	// KindC2C: the GPU is on a root port of Grace or Vera, and GPUDirect RDMA takes NVLink-C2C. All GPUs and
	// ConnectX NICs of a NUMA node are near each other.
	KindC2C Kind = "c2c"
	// KindInline: NIC and GPU are below the PCIe switch of a ConnectX or BlueField.
	KindInline Kind = "inline"
)

// Complex is a set of GPUs and NICs that are near each other for another reason than a switch between root
// port and devices, or that would be if Fault were "".
type Complex struct {
	Kind Kind
	GPUs []Address
	NICs []Address // PFs, and in a guest VFs without a PF
	// Function is the DMA function, Switch the upstream port of the NIC's switch; the zero Address for other
	// kinds.
	Function, Switch Address
	NUMA             NUMANode // of a C2C complex
	Fault            string   // the reason why no NIC of the complex is near its GPUs, "" for none
	// Unread means that the fault is an unknown keyword V3, often for lack of rights (only root reads VPD):
	// there may be a NIC near the GPUs. Without a fault, V3 of a further PF on the card of the NIC is unknown.
	Unread bool
}

// PCI IDs (include/linux/pci_ids.h, and NVIDIA's documents for ConnectX-8 and Grace).
const (
	nvidia   = 0x10de
	mellanox = 0x15b3

	dmaFunction = 0x2100
	mlx5VF      = 0x101e // of any ConnectX since ConnectX-6 Dx
)

var (
	gracePorts = []uint16{0x22b1, 0x22b2, 0x22b8}
	veraPorts  = []uint16{0x2f95, 0x2f96}
	connectX   = []uint16{0x1021, 0x1023, 0x1025, 0xa2dc} // ConnectX-7, -8, -9, BlueField-3
	nicSwitch  = []uint16{0x197b, 0x197c, 0x1979}         // BlueField-3, ConnectX
)

func (d *Device) isOneOf(vendor uint16, products ...uint16) bool {
	return d.Vendor == vendor && slices.Contains(products, d.Product)
}

// IsGracePort reports whether the function is a root port of an NVIDIA Grace CPU.
func (d *Device) IsGracePort() bool { return d.isOneOf(nvidia, gracePorts...) }

// IsVeraPort reports whether the function is a root port of an NVIDIA Vera CPU.
func (d *Device) IsVeraPort() bool { return d.isOneOf(nvidia, veraPorts...) }

// IsNICSwitch reports whether the function is a port of the PCIe switch in a ConnectX or BlueField.
func (d *Device) IsNICSwitch() bool { return d.isOneOf(mellanox, nicSwitch...) }

// isDMAFunction reports whether a function is a DMA function (NVIDIA's Data Direct). The class of the
// function is a network controller's, although the function is no NIC.
func (d *Device) isDMAFunction() bool { return d.isOneOf(mellanox, dmaFunction) }

// IsNIC reports whether the function is a network controller, physical or virtual. A DMA function is none,
// nor a function that manages NVSwitches.
func (d *Device) IsNIC() bool {
	return d.Class.IsNetwork() && !d.isDMAFunction() && !d.ManagesNVSwitches
}

// mayManageNVSwitches reports whether the function has the IDs of those that manage the NVSwitches of HGX
// B200 and B300: a PF of a ConnectX with InfiniBand.
func (d *Device) mayManageNVSwitches() bool {
	const infiniBand = baseNetwork<<8 | 0x07
	return d.Class>>8 == infiniBand && !d.IsVF() && len(d.VFs) == 0 && d.isOneOf(mellanox, connectX...)
}

// isNVSwitch reports whether the function is an NVSwitch up to that of Hopper. Later NVSwitches are no PCI
// functions.
func (d *Device) isNVSwitch() bool { return d.Vendor == nvidia && d.Class>>8 == baseBridge<<8|0x80 }

// isConnectX reports whether the function is that of a NIC that can be part of a complex: a PF, or in a guest
// a VF without its PF. The ID of a VF does not tell the NIC.
func (d *Device) isConnectX() bool {
	return d.IsNIC() && !d.IsVF() && (d.isOneOf(mellanox, connectX...) || d.isOneOf(mellanox, mlx5VF))
}

// mayHaveFunction reports whether the place of a NIC is that of its DMA function, if it has one.
func (d *Device) mayHaveFunction() bool { return d.isConnectX() && !d.moved }

func (d *Device) isNVIDIA() bool { return d.Vendor == nvidia && d.Class>>16 == baseDisplay }

// complexes are the complexes of a tree, and what follows for the places of functions.
type complexes struct {
	all []Complex
	dma map[Address]Address // by PF: the DMA function
	c2c map[Address]int     // by GPU or PF: the NUMA node
}

// Complexes returns the complexes of the machine, those with a fault included, ordered by kind and lowest
// GPU.
func (t *Tree) Complexes() []Complex {
	all := slices.Clone(t.complexes.all)
	for i := range all {
		all[i].GPUs, all[i].NICs = slices.Clone(all[i].GPUs), slices.Clone(all[i].NICs)
	}
	return all
}

// finder finds the complexes of functions.
type finder struct {
	complexes
	devices map[Address]*Device
	order   []Address
	gpus    map[Address][]Address // by bridge: the GPUs below, in ascending order
	// the functions with a keyword V3, by the keyword; "" for unknown, all in ascending order
	functions, nics, moved map[string][]*Device
}

// sortFunctions sorts the functions that addDMA looks for.
func (f *finder) sortFunctions() {
	for _, a := range f.order {
		d := f.devices[a]
		switch {
		case d.isNVIDIA():
			for _, bridge := range d.bridges {
				f.gpus[bridge] = append(f.gpus[bridge], a)
			}
		case d.isDMAFunction():
			f.functions[d.V3] = append(f.functions[d.V3], d)
		case d.mayHaveFunction():
			f.nics[d.V3] = append(f.nics[d.V3], d)
		case d.isConnectX():
			f.moved[d.V3] = append(f.moved[d.V3], d)
		}
	}
}

// findComplexes returns the complexes of functions. A GPU of a DMA function is below a switch, so a machine
// whose GPUs are all directly on root ports of Grace or Vera is a C2C machine, stray DMA functions or not.
func findComplexes(devices map[Address]*Device, order []Address) complexes {
	f := finder{
		complexes: complexes{dma: map[Address]Address{}, c2c: map[Address]int{}}, devices: devices, order: order,
		gpus: map[Address][]Address{}, functions: map[string][]*Device{}, nics: map[string][]*Device{},
		moved: map[string][]*Device{},
	}
	f.sortFunctions()
	for _, function := range f.listWith((*Device).isDMAFunction) {
		f.addDMA(function)
	}
	f.keepOwnPlaces()
	if f.isC2C() {
		f.addC2C()
	}
	f.addInline()
	slices.SortStableFunc(f.all, func(a, b Complex) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), slices.CompareFunc(a.GPUs, b.GPUs, Address.Compare))
	})
	return f.complexes
}

// listWith returns the functions with a property, in ascending order.
func (f *finder) listWith(has func(*Device) bool) (all []*Device) {
	for _, a := range f.order {
		if d := f.devices[a]; has(d) {
			all = append(all, d)
		}
	}
	return all
}

func addressesOf(devices []*Device) (all []Address) {
	for _, d := range devices {
		all = append(all, d.Address)
	}
	return all
}

// besideGPU returns the lowest switch that a DMA function shares with GPUs, and the GPUs.
func (f *finder) besideGPU(function *Device) (at Address, gpus []Address) {
	for i := len(function.bridges) - 1; i > 0 && len(gpus) == 0; i-- {
		at = function.bridges[i]
		gpus = slices.Clone(f.gpus[at])
	}
	return at, gpus
}

// addDMA adds the complex of a DMA function: the GPU below the same switch, and the PFs with the same V3.
func (f *finder) addDMA(function *Device) {
	c := Complex{Kind: KindDMA, Function: function.Address}
	c.Switch, c.GPUs = f.besideGPU(function)
	v3 := function.V3
	if v3 != "" {
		c.NICs = addressesOf(f.nics[v3])
	}
	same, moved, unread := f.functions[v3], f.moved[v3], f.nics[""]
	switch {
	case len(c.GPUs) == 0:
		c.Fault = fmt.Sprintf("no GPU is below the switch of DMA function %s", function.Address)
	case v3 == "":
		c.Unread = len(f.nics) > 0
		c.Fault = fmt.Sprintf("keyword V3 in the vpd file of DMA function %s is unknown: the file is "+
			"absent, damaged or readable only by root", function.Address)
	case len(same) > 1:
		other := same[0]
		if other == function {
			other = same[1]
		}
		c.Fault = fmt.Sprintf("DMA functions %s and %s have the same V3", function.Address, other.Address)
	case len(c.NICs) == 0 && len(moved) > 0:
		c.Fault = fmt.Sprintf("the place of NIC %s is given, and counts instead of DMA function %s",
			moved[0].Address, function.Address)
	case len(c.NICs) == 0:
		c.Fault = fmt.Sprintf("no ConnectX NIC has the V3 of DMA function %s", function.Address)
		if len(unread) > 0 {
			c.Unread = true
			c.Fault += fmt.Sprintf("; keyword V3 in the vpd file of %s is unknown", unread[0].Address)
		}
	}
	if c.Fault == "" {
		for _, nic := range c.NICs {
			f.dma[nic] = function.Address
		}
		c.Unread = slices.ContainsFunc(unread, c.hasCardOf)
	}
	f.all = append(f.all, c)
}

// keepOwnPlaces removes the NICs from DMA complexes that have a nearer GPU at their own place.
func (f *finder) keepOwnPlaces() {
	if len(f.dma) == 0 {
		return
	}
	cards := cardsBelow(f.devices, f.dma)
	for i := range f.all {
		c := &f.all[i]
		if c.Fault != "" {
			continue
		}
		there := f.nearestGPU(cards, f.devices[c.Function])
		c.NICs = slices.DeleteFunc(c.NICs, func(nic Address) bool {
			nearer := f.nearestGPU(cards, f.devices[nic]).Compare(there) < 0
			if nearer {
				delete(f.dma, nic)
				c.Fault = fmt.Sprintf("the distances of NIC %s are those of the NIC itself, not of DMA function %s: "+
					"a GPU is nearer to the NIC than any GPU to the function", nic, c.Function)
			}
			return nearer
		})
		if len(c.NICs) > 0 {
			c.Fault = ""
		}
	}
}

// nearestGPU returns the distance from a place to the nearest GPU, UNK if no bridge is shared with any.
func (f *finder) nearestGPU(cards occupancy, at *Device) Distance {
	nearest := Distance{Level: UNK}
	for _, gpu := range f.listWith((*Device).isNVIDIA) {
		d, ok := distanceBelow(cards.sharedBridges(at.bridges), cards.sharedBridges(gpu.bridges))
		if ok && d.Compare(nearest) < 0 {
			nearest = d
		}
	}
	return nearest
}

// isOnGrace reports whether a GPU is directly below a root port of Grace or Vera.
func (f *finder) isOnGrace(d *Device) bool {
	if !d.isNVIDIA() || len(d.bridges) != 1 {
		return false
	}
	port, ok := f.devices[d.bridges[0]]
	return ok && (port.IsGracePort() || port.IsVeraPort())
}

// isC2C reports whether the machine has GPUs, each directly below a root port of Grace or Vera.
func (f *finder) isC2C() bool {
	gpus := f.listWith((*Device).isNVIDIA)
	return len(gpus) > 0 && !slices.ContainsFunc(gpus, func(d *Device) bool { return !f.isOnGrace(d) })
}

// addC2C adds a complex for each NUMA node with GPUs.
func (f *finder) addC2C() {
	nodes := map[NUMANode][]*Device{}
	for _, gpu := range f.listWith((*Device).isNVIDIA) {
		nodes[gpu.NUMA] = append(nodes[gpu.NUMA], gpu)
	}
	byNumber := func(a, b NUMANode) int { return cmp.Compare(a.number, b.number) }
	for _, numa := range slices.SortedFunc(maps.Keys(nodes), byNumber) {
		c := Complex{Kind: KindC2C, GPUs: addressesOf(nodes[numa]), NUMA: numa}
		number, known := numa.Number()
		if known {
			c.NICs = addressesOf(f.listWith(func(d *Device) bool { return d.isConnectX() && d.NUMA == numa }))
		}
		switch {
		case !known:
			c.Fault = "the NUMA node of the GPUs is unknown"
		case len(c.NICs) == 0:
			c.Fault = fmt.Sprintf("no ConnectX NIC is on NUMA node %d", number)
		default:
			for _, a := range slices.Concat(c.GPUs, c.NICs) {
				f.c2c[a] = number
			}
		}
		f.all = append(f.all, c)
	}
}

// addInline adds a complex for each switch of a NIC with NICs and GPUs below.
func (f *finder) addInline() {
	below := map[Address]*Complex{}
	add := func(d *Device, to func(*Complex)) {
		if _, elsewhere := f.dma[d.Address]; elsewhere {
			return
		}
		for _, bridge := range d.bridges {
			if port, ok := f.devices[bridge]; ok && port.IsNICSwitch() {
				if below[bridge] == nil {
					below[bridge] = &Complex{Kind: KindInline, Switch: bridge}
				}
				to(below[bridge])
				return // the upstream port; further ports are of the same switch or below
			}
		}
	}
	for _, a := range f.order {
		switch d := f.devices[a]; {
		case d.isNVIDIA():
			add(d, func(c *Complex) { c.GPUs = append(c.GPUs, a) })
		case d.isConnectX():
			add(d, func(c *Complex) { c.NICs = append(c.NICs, a) })
		}
	}
	for _, c := range below {
		if len(c.GPUs) > 0 && len(c.NICs) > 0 {
			f.all = append(f.all, *c)
		}
	}
}

// MayBeNearer reports whether a NIC may be nearer to a GPU than [Tree.Distance] tells: the NIC may be that of
// a DMA function of the GPU ([Tree.UnreadFunction]).
func (t *Tree) MayBeNearer(gpu, nic Address) bool {
	_, may := t.UnreadFunction(gpu, nic)
	return may
}

// UnreadFunction returns the DMA function of a GPU to which a farther NIC may belong: a keyword V3 that tells
// is unknown ([Complex].Unread).
func (t *Tree) UnreadFunction(gpu, nic Address) (function Address, may bool) {
	d, ok := t.devices[nic]
	if !ok {
		return Address{}, false
	}
	pf, ok := t.devices[d.Function()]
	if _, known := t.complexes.dma[d.Function()]; !ok || known || !pf.mayHaveFunction() {
		return Address{}, false
	}
	i := slices.IndexFunc(t.complexes.all, func(c Complex) bool {
		return c.Unread && (pf.V3 == "" || t.devices[c.Function].V3 == "") && slices.Contains(c.GPUs, gpu) &&
			(c.Fault != "" || c.hasCardOf(pf))
	})
	if i < 0 || t.Distance(gpu, nic).Level.Direct() {
		return Address{}, false
	}
	return t.complexes.all[i].Function, true
}

// hasCardOf reports whether a PF of the complex is on the card of a PF.
func (c *Complex) hasCardOf(pf *Device) bool {
	return slices.ContainsFunc(c.NICs, func(a Address) bool { return a.Slot() == pf.Address.Slot() })
}

// c2cPrefix begins the name of the place where the devices of a C2C complex meet, "c2c0" for NUMA node 0. The
// name takes the place of a root complex in paths.
const c2cPrefix = "c2c"

func isC2CName(name string) bool { return strings.HasPrefix(name, c2cPrefix) }

// Top returns the name of the topmost place of a function: its C2C complex ("c2c0"), otherwise the root
// complex of the function's place ("pci0000:80").
func (t *Tree) Top(a Address) string {
	d, ok := t.devices[a]
	if !ok {
		return ""
	}
	return t.topOf(d)
}

func (t *Tree) topOf(d *Device) string {
	if number, near := t.complexes.c2c[d.Function()]; near {
		return fmt.Sprint(c2cPrefix, number)
	}
	return t.pluggedIn(d).rootComplex
}
