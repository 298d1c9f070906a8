// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement/solver"
)

// finish attaches the root complexes to their NUMA nodes and sorts the tree.
func (p *places) finish(vfs int) {
	for i := range p.complexes {
		c := &p.complexes[i]
		c.place.above = p.node(c.numa)
	}
	p.listChildren()
	p.listPFs()
	p.root = p.settle(&p.world.Place, vfs)
	if p.root != nil {
		p.root.Parent = nil
	}
}

// node returns the place of a NUMA node; an unknown node is directly below the world.
func (p *places) node(n topology.NUMANode) *spot {
	number, known := n.Number()
	if p.nodes <= 1 {
		number, known = 0, true
	}
	if !known {
		return p.world
	}
	for _, node := range p.numa {
		if node.number == number {
			return node.place
		}
	}
	p.numa = append(p.numa, numaNode{number, p.new(solver.Node, p.system)})
	return p.numa[len(p.numa)-1].place
}

// listChildren sets the children of every place.
func (p *places) listChildren() {
	for _, n := range p.all[1:] {
		n.above.below++
	}
	room := arena[*solver.Place]{make([]*solver.Place, len(p.all))}
	for _, n := range p.all[1:] {
		if n.above.Children == nil {
			n.above.Children = room.take(n.above.below)[:0]
		}
		n.above.Children = append(n.above.Children, &n.Place)
	}
}

// listPFs sets the PFs of every group.
func (p *places) listPFs() {
	slices.SortFunc(p.pfs, func(a, b *port) int {
		return cmp.Or(cmp.Compare(a.group.number, b.group.number), a.address.Compare(b.address))
	})
	room := arena[*solver.PF]{make([]*solver.PF, len(p.pfs))}
	for from, to := 0, 0; from < len(p.pfs); from = to {
		group := p.pfs[from].group
		for to < len(p.pfs) && p.pfs[to].group == group {
			to++
		}
		group.PFs = room.take(to - from)
		for i, f := range p.pfs[from:to] {
			group.PFs[i] = &f.PF
		}
	}
}

// settle counts the devices below a place, removes places without devices to choose from, sorts the rest by
// lowest address, and replaces a place that has a single child by that child. It returns the resulting place,
// or nil.
func (p *places) settle(n *solver.Place, vfs int) *solver.Place {
	kept := n.Children[:0]
	for _, child := range n.Children {
		if settled := p.settle(child, vfs); settled != nil {
			see(n, settled.First)
			settled.Parent = n
			kept = append(kept, settled)
		}
		n.Content.Add(child.Content)
	}
	n.Children = kept
	if n.GPUs.Most+n.VFs.Most == 0 {
		return nil
	}
	slices.SortFunc(kept, func(a, b *solver.Place) int { return a.First.Compare(b.First) })
	switch n.Kind {
	case solver.Group:
		further := min(n.VFs.Most, vfs) - n.VFs.Held
		n.PlanFill(p.fills.take(further), p.fillCosts.take(further+1))
	case solver.Card, solver.Node:
	default:
		if len(kept) == 1 {
			return kept[0]
		}
	}
	return n
}
