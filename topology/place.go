// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"maps"
	"slices"
)

// Place is where a function hangs.
type Place struct {
	RootComplex string    // "pci0000:80"
	Bridges     []Address // above the function, from the top down; the tree need not hold them
	NUMA        NUMANode
}

// Place returns where a function hangs, and whether there is one. A VF hangs where its PF does.
func (t *Tree) Place(a Address) (Place, bool) {
	d, ok := t.devices[a]
	if !ok {
		return Place{}, false
	}
	d = t.pluggedIn(d)
	return Place{RootComplex: d.rootComplex, Bridges: slices.Clone(d.bridges), NUMA: d.NUMA}, true
}

// Move returns the same functions with some of them at other places, for a machine whose sysfs does not tell
// how it is built. The VFs of a PF go with it. What the tree does not hold stays out.
func (t *Tree) Move(to map[Address]Place) *Tree {
	devices := maps.Clone(t.devices)
	for address, place := range to {
		if d, ok := devices[address]; ok {
			moved := *d
			moved.rootComplex, moved.bridges, moved.NUMA = place.RootComplex, slices.Clone(place.Bridges), place.NUMA
			devices[address] = &moved
		}
	}
	return newTree(devices, t.nodes)
}
