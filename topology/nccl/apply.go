// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// Apply returns a tree with its functions where the file has them; all functions of a card go where one is.
// It fails where a card would be in two places, and where the file has none of the tree's functions and is
// another machine's.
func (f *File) Apply(t *topology.Tree) (*topology.Tree, error) {
	p := &placer{tree: t, roots: map[*element]string{}, elements: map[topology.Address]*element{}}
	for _, e := range f.leaves {
		if err := p.claim(e); err != nil {
			return nil, fmt.Errorf("apply topology file %s: %w", f.name, err)
		}
	}
	if len(p.elements) == 0 {
		return nil, fmt.Errorf("apply topology file %s: this machine has none of its %d PCI functions; "+
			"is it for another one?", f.name, len(f.leaves))
	}
	places := map[topology.Address]topology.Place{}
	for d := range t.Devices() {
		if e, ok := p.elements[d.Function().Slot()]; ok && d.Function() == d.Address {
			places[d.Address] = p.place(d, e)
		}
	}
	return t.Move(places), nil
}

// placer knows which element stands for which card.
type placer struct {
	tree     *topology.Tree
	elements map[topology.Address]*element // by slot
	roots    map[*element]string           // root complexes of what is below <cpu>
}

// claim notes the card of a function. A VF stands for its PF.
func (p *placer) claim(e *element) error {
	d, ok := p.tree.Device(e.address)
	if !ok || isBridge(d) {
		return nil
	}
	at := d.Function().Slot()
	if other := p.elements[at]; other != nil {
		if other.parent != e.parent || other.numa != e.numa {
			return fmt.Errorf("line %d: <pci busid=%q>: it is on the same card as %s in line %d, "+
				"which is below another bridge or NUMA node",
				e.line, e.address, other.address, other.line)
		}
		return nil
	}
	p.elements[at] = e
	if place, _ := p.tree.Place(d.Address); p.roots[e.top()] == "" {
		p.roots[e.top()] = place.RootComplex
	}
	return nil
}

// place is where the file has a function.
func (p *placer) place(d *topology.Device, e *element) topology.Place {
	place, _ := p.tree.Place(d.Address)
	if !e.within(place.Bridges) {
		place.RootComplex, place.Bridges = p.below(e.parent)
	}
	if _, known := e.numa.Number(); known {
		place.NUMA = e.numa
	}
	return place
}

// below is the way down to what hangs on a bridge of the file. One that the machine has too hangs where the
// machine has it, unless the file has it elsewhere.
func (p *placer) below(bridge *element) (rootComplex string, bridges []topology.Address) {
	if place, ok := p.tree.Place(bridge.address); ok && bridge.within(place.Bridges) {
		return place.RootComplex, append(place.Bridges, bridge.address)
	}
	if bridge.parent == nil {
		return p.roots[bridge], []topology.Address{bridge.address}
	}
	rootComplex, bridges = p.below(bridge.parent)
	return rootComplex, append(bridges, bridge.address)
}

// within reports whether all that is above an element is among these bridges.
func (e *element) within(bridges []topology.Address) bool {
	for up := e.parent; up != nil; up = up.parent {
		if !slices.Contains(bridges, up.address) {
			return false
		}
	}
	return true
}

// top is the element right below <cpu>.
func (e *element) top() *element {
	for e.parent != nil {
		e = e.parent
	}
	return e
}

func isBridge(d *topology.Device) bool { return d.Class>>16 == 0x06 }
