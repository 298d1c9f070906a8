// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"iter"
	"maps"
	"slices"
)

// Tree is the PCI tree of a node at one moment. It never changes and may be shared.
type Tree struct {
	devices map[Address]*Device
	order   []Address // of devices, ascending
	nodes   []int     // online NUMA nodes, ascending
	shared  map[Address][]Address

	redirected map[Address]int // without those where it is 0
	upstream   map[Address]Address
}

// newTree derives what Distance needs once, so that asking is cheap.
func newTree(devices map[Address]*Device, nodes []int) *Tree {
	t := &Tree{
		devices: devices,
		order:   slices.SortedFunc(maps.Keys(devices), Address.Compare),
		nodes:   nodes,
		shared:  make(map[Address][]Address, len(devices)),

		redirected: map[Address]int{},
	}
	if len(t.nodes) == 0 {
		t.nodes = knownNodes(devices)
	}
	t.upstream = t.upstreamPorts()
	cards := t.cardsBelow()
	for address, device := range devices {
		bridges := t.pluggedIn(device).bridges
		t.shared[address] = slices.DeleteFunc(slices.Clone(bridges), func(bridge Address) bool {
			return cards[bridge].single()
		})
		if n := t.aboveRedirect(bridges, t.shared[address]); n > 0 {
			t.redirected[address] = n
		}
	}
	return t
}

// Devices yields every function in ascending order of address.
func (t *Tree) Devices() iter.Seq[*Device] {
	return func(yield func(*Device) bool) {
		for _, a := range t.order {
			if !yield(t.devices[a]) {
				return
			}
		}
	}
}

// Device returns the function at an address, and whether there is one.
func (t *Tree) Device(a Address) (*Device, bool) {
	d, ok := t.devices[a]
	return d, ok
}

// NUMANodes returns the node's online NUMA nodes, ascending; those that devices name where sysfs does not
// list them.
func (t *Tree) NUMANodes() []int { return slices.Clone(t.nodes) }

// SharedBridges returns the bridges above a function that other cards hang on too, from the top down: its
// chain with the bridges of its own card left out. The last one is the switch that the card is plugged into.
func (t *Tree) SharedBridges(a Address) []Address { return slices.Clone(t.shared[a]) }

// Switch names the switch that a device hangs on, so that devices of one name are PIX or PXB to each other:
// the upstream port of the topmost switch that it shares with another card, which is the function that lspci
// shows as that switch. It is the topmost bridge that they share where that is no root port with a switch
// below it, as in guests; the host bridge where they share no bridge; and "unknown" for a device that the
// tree does not hold.
func (t *Tree) Switch(a Address) string {
	d, ok := t.Device(a)
	if !ok {
		return "unknown"
	}
	shared := t.shared[a]
	switch {
	case len(shared) == 0:
		return d.RootComplex()
	case len(shared) > 1 && t.upstream[shared[0]] == shared[1]:
		return shared[1].String()
	default:
		return shared[0].String()
	}
}

// IsSwitch reports whether devices of which [Tree.Switch] tells this name share a switch. Those that hang on
// a host bridge alone do not: that is PHB.
func IsSwitch(name string) bool {
	_, err := ParseAddress(name)
	return err == nil
}

// AppendSharedBridges appends what SharedBridges returns, for callers that ask often.
func (t *Tree) AppendSharedBridges(to []Address, a Address) []Address {
	return append(to, t.shared[a]...)
}

// pluggedIn is the function that is plugged into the tree: the PF of a VF, whatever bus the VF's own number
// names and whatever its own numa_node says.
func (t *Tree) pluggedIn(d *Device) *Device {
	if pf, ok := t.devices[d.PF]; ok && d.IsVF() {
		return pf
	}
	return d
}

// occupancy remembers whether one card or several hang below a bridge.
type occupancy struct {
	card    Address
	several bool
}

func (o *occupancy) single() bool { return o != nil && !o.several }

// cardsBelow counts the cards below every bridge as far as it matters: one, or several.
func (t *Tree) cardsBelow() map[Address]*occupancy {
	below := map[Address]*occupancy{}
	parents := map[Address]bool{}
	for _, d := range t.devices {
		for _, bridge := range d.bridges {
			parents[bridge] = true
		}
	}
	for _, d := range t.devices {
		if d.Class.isBridge() || parents[d.Address] {
			continue
		}
		card := d.Function().Slot()
		for _, bridge := range t.pluggedIn(d).bridges {
			switch o := below[bridge]; {
			case o == nil:
				below[bridge] = &occupancy{card: card}
			case o.card != card:
				o.several = true
			}
		}
	}
	return below
}

// upstreamPorts finds, below bridges on a root bus, the upstream port of the switch that is in
// their only slot: a
// root port leads to one card. Endpoints of the switch itself may be beside it, as further functions.
func (t *Tree) upstreamPorts() map[Address]Address {
	ports, several := map[Address]Address{}, map[Address]bool{}
	slots := map[Address]Address{}
	for _, d := range t.devices {
		bridges := t.pluggedIn(d).bridges
		if len(bridges) == 0 {
			continue
		}
		top, below := bridges[0], d.Function()
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
