// SPDX-License-Identifier: Apache-2.0

// Package topology reads the places of a node's PCI devices and the distances between them.
//
// A [Tree] is read from a sysfs root ([Read]) and never changes; call Read again to see a change. A tree
// contains all PCI functions with the chain of bridges, the NUMA node and, for network functions, PF, VFs,
// netdevs and RDMA devices.
//
//	pci0000:07                     root complex (host bridge)
//	└─ 0000:07:00.0                root port
//	   └─ 0000:08:00.0             switch, upstream port
//	      ├─ 0000:09:00.0          switch, downstream port
//	      │  └─ 0000:0c:00.0       NIC, a PF; its VFs 0000:0c:00.1 … have the same chain
//	      └─ 0000:09:01.0          switch, downstream port
//	         └─ 0000:0f:00.0       bridge on the GPU's own card
//	            └─ 0000:10:00.0    bridge on the GPU's own card
//	               └─ 0000:11:00.0 GPU
//
// # Distance
//
// [Tree.Distance] returns the levels of "nvidia-smi topo -m": [PIX], [PXB], [PHB], [NODE], [SYS], and [UNK]
// for an unknown distance; and [C2C], for which nvidia-smi has NODE. A bridge that leads to a single card
// belongs to the card and is ignored in the comparison of two chains. In the example 0000:09:01.0,
// 0000:0f:00.0 and 0000:10:00.0 lead only to the GPU, and 0000:09:00.0 leads only to the NIC. For both
// devices the first shared bridge is therefore 0000:08:00.0, and the level is PIX. Without this rule no GPU
// with a bridge of its own (MI250, MI300X) would be near a NIC, although only one switch chip is between the
// devices.
//
// # Complexes
//
// On machines with Grace or Vera, and with NICs that have a PCIe switch, the chains of a GPU and of its NIC
// do not tell their distance. [Tree.Complexes] returns these sets of GPUs and NICs with the reason:
//
//   - A NIC with a DMA function has the place of the function (VPD keyword V3, common to both), with its
//     switch and NUMA node, or its own place if a GPU is nearer there than any GPU at the function.
//   - A GPU on a root port of Grace or Vera is C2C to the ConnectX NICs of its NUMA node. Two GPUs or two
//     NICs have the distance of their chains.
//   - A NIC and GPUs below the switch of the NIC have the distance of their chains. Their ports may redirect
//     traffic that takes no detour (ACS Direct Translated P2P).
//
// A complex with a fault changes no distance.
//
// # Cards
//
// A card is the content of a slot: all functions with the same domain, bus and device number, and the VFs of
// its PFs with any numbers.
//
// The package uses only the standard library, starts no goroutine and writes no log.
package topology

import (
	"iter"
	"maps"
	"slices"
)

// Tree is the PCI tree of a node at one moment. A tree never changes and may be shared.
type Tree struct {
	devices map[Address]*Device
	order   []Address // of devices, ascending
	nodes   []int     // online NUMA nodes, ascending
	shared  map[Address][]Address
	ofC2C   map[Address][]Address // shared bridges of the members of C2C complexes

	redirected map[Address]int  // without zeros
	translated map[Address]bool // by bridge with NICs below: whether all of these send translated requests
	upstream   map[Address]Address
	complexes  complexes
}

// newTree prepares the answers for Distance, so that each call is cheap.
func newTree(devices map[Address]*Device, nodes []int) *Tree {
	t := &Tree{
		devices: devices,
		order:   slices.SortedFunc(maps.Keys(devices), Address.Compare),
		nodes:   nodes,
		shared:  make(map[Address][]Address, len(devices)),
		ofC2C:   map[Address][]Address{},

		redirected: map[Address]int{},
		translated: map[Address]bool{},
	}
	if len(t.nodes) == 0 {
		t.nodes = knownNodes(devices)
	}
	t.complexes = findComplexes(devices, t.order)
	t.upstream = t.upstreamPorts()
	cards := cardsBelow(devices, t.complexes.dma)
	for address, device := range devices {
		if _, near := t.complexes.c2c[device.Function()]; near {
			t.ofC2C[address] = cards.sharedBridges(t.pluggedIn(device).bridges)
		} else {
			t.shared[address] = cards.sharedBridges(t.pluggedIn(device).bridges)
		}
	}
	t.findTranslated()
	for address, device := range devices {
		if n := t.aboveRedirect(device, t.shared[address]); n > 0 {
			t.redirected[address] = n
		}
	}
	return t
}

// Devices yields all functions in ascending order of address.
func (t *Tree) Devices() iter.Seq[*Device] {
	return func(yield func(*Device) bool) {
		for _, a := range t.order {
			if !yield(t.devices[a]) {
				return
			}
		}
	}
}

// Device returns the function at an address, and whether the tree has one.
func (t *Tree) Device(a Address) (*Device, bool) {
	d, ok := t.devices[a]
	return d, ok
}

// NUMANodes returns the machine's online NUMA nodes in ascending order. If sysfs does not list them, these
// are the NUMA nodes of the devices.
func (t *Tree) NUMANodes() []int { return slices.Clone(t.nodes) }

// SharedBridges returns the bridges above a function that also lead to other cards, from the top down: all
// bridges of the chain except the card's own. The last one is the switch into which the card is plugged. The
// members of a C2C complex have none: the way to the GPUs is the same for all of its NICs.
func (t *Tree) SharedBridges(a Address) []Address { return slices.Clone(t.shared[a]) }

// Switch returns the name of a device's switch, so that a GPU and a NIC of one name are PIX, PXB or C2C: the
// upstream port of the topmost switch shared with another card, which lspci shows as the switch. If the
// topmost shared bridge is not a root port with a switch below, as in guests, Switch returns this bridge; if
// no bridge is shared, the C2C complex or the host bridge; for a device outside the tree, "unknown".
func (t *Tree) Switch(a Address) string {
	d, ok := t.Device(a)
	if !ok {
		return "unknown"
	}
	shared := t.shared[a]
	switch {
	case len(shared) == 0:
		return t.topOf(d)
	case len(shared) > 1 && t.upstream[shared[0]] == shared[1]:
		return shared[1].String()
	default:
		return shared[0].String()
	}
}

// IsSwitch reports whether a name from [Tree.Switch] is the name of a switch or C2C complex. Devices that
// share only a host bridge (PHB) do not share a switch.
func IsSwitch(name string) bool {
	_, err := ParseAddress(name)
	return err == nil || isC2CName(name)
}

// pluggedIn returns the function that is plugged into the tree. For a VF this is the PF, regardless of the
// VF's own bus number and numa_node; for a NIC with a DMA function the DMA function, unless a GPU is nearer
// to the NIC itself ([KindDMA]).
func (t *Tree) pluggedIn(d *Device) *Device {
	if function, ok := t.complexes.dma[d.Function()]; ok {
		return t.devices[function]
	}
	if pf, ok := t.devices[d.PF]; ok && d.IsVF() {
		return pf
	}
	return d
}

// occupancy records, by bridge, whether the bridge leads to one card or to several.
type occupancy map[Address]*occupants

type occupants struct {
	card    Address
	several bool
}

// sharedBridges returns the bridges of a chain that lead to several cards.
func (o occupancy) sharedBridges(chain []Address) []Address {
	return slices.DeleteFunc(slices.Clone(chain), func(bridge Address) bool {
		return o[bridge] != nil && !o[bridge].several
	})
}

func (o occupancy) addCard(chain []Address, card Address) {
	for _, bridge := range chain {
		switch of := o[bridge]; {
		case of == nil:
			o[bridge] = &occupants{card: card}
		case of.card != card:
			of.several = true
		}
	}
}

// cardsBelow returns the occupancy of every bridge. The bridges above a NIC and those above its DMA function,
// by PF, lead to the NIC.
func cardsBelow(devices map[Address]*Device, dma map[Address]Address) occupancy {
	below := occupancy{}
	parents := map[Address]bool{}
	for _, d := range devices {
		for _, bridge := range d.bridges {
			parents[bridge] = true
		}
	}
	for _, d := range devices {
		if d.Class.isBridge() || parents[d.Address] || d.isDMAFunction() { // a DMA function is part of its NIC
			continue
		}
		if pf, ok := devices[d.PF]; ok && d.IsVF() {
			d = pf
		}
		below.addCard(d.bridges, d.Address.Slot())
		if function, ok := dma[d.Address]; ok {
			below.addCard(devices[function].bridges, function.Slot())
		}
	}
	return below
}

// upstreamPorts returns, by bridge on a root bus, the upstream port of the switch in the bridge's only slot:
// a root port leads to one card. The slot may also contain endpoints of the switch, as additional functions.
func (t *Tree) upstreamPorts() map[Address]Address {
	ports, several := map[Address]Address{}, map[Address]bool{}
	slots := map[Address]Address{}
	for _, d := range t.devices {
		at := t.pluggedIn(d)
		bridges := at.bridges
		if len(bridges) == 0 {
			continue
		}
		top, below := bridges[0], at.Address
		if len(bridges) > 1 {
			below = bridges[1]
			if port, known := ports[top]; known && port != below {
				several[top] = true
			}
			ports[top] = below
		}
		if slot, known := slots[top]; known && slot != below.Slot() {
			several[top] = true
		}
		slots[top] = below.Slot()
	}
	maps.DeleteFunc(ports, func(top, _ Address) bool { return several[top] })
	return ports
}

func knownNodes(devices map[Address]*Device) []int {
	known := map[int]bool{}
	for _, d := range devices {
		if n, ok := d.NUMA.Number(); ok {
			known[n] = true
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// Place is the place of a function in the tree.
type Place struct {
	RootComplex string    // "pci0000:80"
	Bridges     []Address // above the function, from the top down; not necessarily in the tree
	NUMA        NUMANode
}

// Place returns the place of a function, and whether the tree has the function. A VF has the place of its PF,
// a NIC the place of its DMA function.
func (t *Tree) Place(a Address) (Place, bool) {
	d, ok := t.devices[a]
	if !ok {
		return Place{}, false
	}
	at := t.pluggedIn(d)
	return Place{RootComplex: at.rootComplex, Bridges: slices.Clone(at.bridges), NUMA: at.NUMA}, true
}

// NUMA returns the NUMA node of a function's place: of the PF of a VF, of the DMA function of a NIC. The
// node of a function outside the tree is unknown.
func (t *Tree) NUMA(a Address) NUMANode {
	if d, ok := t.devices[a]; ok {
		return t.pluggedIn(d).NUMA
	}
	return NUMANode{}
}

// Move returns a tree with some functions at other places, for a machine whose sysfs does not show the true
// topology. The VFs of a PF move with the PF. Functions outside the tree are ignored.
func (t *Tree) Move(to map[Address]Place) *Tree {
	devices := maps.Clone(t.devices)
	for address, place := range to {
		if d, ok := devices[address]; ok && !t.isAtFunction(address, place) {
			moved := *d
			moved.rootComplex, moved.bridges, moved.NUMA = place.RootComplex, slices.Clone(place.Bridges), place.NUMA
			moved.moved = true
			devices[address] = &moved
		}
	}
	return newTree(devices, t.nodes)
}

// isAtFunction reports whether a place of a NIC is that of its DMA function.
func (t *Tree) isAtFunction(nic Address, place Place) bool {
	_, has := t.complexes.dma[nic]
	at, _ := t.Place(nic)
	return has && at.RootComplex == place.RootComplex && at.NUMA == place.NUMA &&
		slices.Equal(at.Bridges, place.Bridges)
}

// Assemble returns a tree of functions whose places come from another source than sysfs: the i-th function
// has the i-th place. The nodes are the machine's NUMA nodes in ascending order; without any, the NUMA nodes
// of the places. The tree takes ownership of the functions.
func Assemble(functions []*Device, at []Place, nodes []int) *Tree {
	devices := make(map[Address]*Device, len(functions))
	for i, d := range functions {
		d.rootComplex, d.bridges, d.NUMA = at[i].RootComplex, at[i].Bridges, at[i].NUMA
		devices[d.Address] = d
	}
	return newTree(devices, nodes)
}

// RDMAFunctions returns the VFs of all NICs with RDMA, and NICs without VFs, in order.
func (t *Tree) RDMAFunctions() (functions []*Device) {
	for nic := range t.Devices() {
		if !nic.IsNIC() || nic.IsVF() || len(nic.RDMA) == 0 {
			continue
		}
		for _, address := range nic.VFs {
			if vf, ok := t.devices[address]; ok {
				functions = append(functions, vf)
			}
		}
		if len(nic.VFs) == 0 {
			functions = append(functions, nic)
		}
	}
	return functions
}
