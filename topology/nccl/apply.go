// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// Apply returns a copy of a tree with the functions moved to their places in the file. All functions of a
// card move together. Apply returns an error if the file has a card in two places or none of the tree's
// functions.
func (f *File) Apply(t *topology.Tree) (*topology.Tree, error) {
	p := &placer{tree: t, roots: map[*element]string{}, elements: map[topology.Address]*element{}}
	for _, e := range f.leaves {
		if err := p.claim(e); err != nil {
			return nil, fmt.Errorf("apply topology file %s: %w", f.name, err)
		}
	}
	if len(p.elements) == 0 {
		return nil, fmt.Errorf("apply topology file %s: this machine has none of the file's %d PCI functions; "+
			"is the file for another machine?", f.name, len(f.leaves))
	}
	places := map[topology.Address]topology.Place{}
	for d := range t.Devices() {
		if e, ok := p.elements[d.Function().Slot()]; ok && d.Function() == d.Address {
			places[d.Address] = p.place(d, e)
		}
	}
	return t.Move(places), nil
}

// placer finds the places of cards.
type placer struct {
	tree     *topology.Tree
	elements map[topology.Address]*element // by slot of the card
	roots    map[*element]string           // root complexes of the elements right below <cpu>
}

// claim assigns an element to the card of its function. The card of a VF is that of its PF.
func (p *placer) claim(e *element) error {
	d, ok := p.tree.Device(e.address)
	if !ok || isBridge(d) {
		return nil
	}
	at := d.Function().Slot()
	if other := p.elements[at]; other != nil {
		if other.parent != e.parent || other.numa != e.numa {
			return fmt.Errorf("line %d: <pci busid=%q>: same card as %s in line %d, "+
				"but below another bridge or NUMA node",
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

// place returns the place of a function in the file.
func (p *placer) place(d *topology.Device, e *element) topology.Place {
	place, _ := p.tree.Place(d.Address)
	if !e.within(place.Bridges) {
		place.RootComplex, place.Bridges = p.path(e.parent)
	}
	if _, known := e.numa.Number(); known {
		place.NUMA = e.numa
	}
	return place
}

// path returns the root complex and the bridges above a function, down to a bridge of the file. If the
// machine has the bridge and the file does not contradict its place, the path is that of the machine.
func (p *placer) path(bridge *element) (rootComplex string, bridges []topology.Address) {
	if place, ok := p.tree.Place(bridge.address); ok && bridge.within(place.Bridges) {
		return place.RootComplex, append(place.Bridges, bridge.address)
	}
	if bridge.parent == nil {
		return p.roots[bridge], []topology.Address{bridge.address}
	}
	rootComplex, bridges = p.path(bridge.parent)
	return rootComplex, append(bridges, bridge.address)
}

// within reports whether a list of bridges contains all elements above e.
func (e *element) within(bridges []topology.Address) bool {
	for up := e.parent; up != nil; up = up.parent {
		if !slices.Contains(bridges, up.address) {
			return false
		}
	}
	return true
}

// top returns the element right below <cpu> that is e or contains e.
func (e *element) top() *element {
	for e.parent != nil {
		e = e.parent
	}
	return e
}

func isBridge(d *topology.Device) bool { return d.Class>>16 == 0x06 }
