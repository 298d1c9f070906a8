package placement

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement/solver"
)

// finish hangs the root complexes below their NUMA nodes and brings everything into order.
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

// node finds the place of a NUMA node; one that is not known is anywhere in the world.
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

// listChildren gives every place the list of its children.
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

// listPFs gives every group the list of its PFs.
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

// settle counts what is below, leaves out what nothing can be chosen from, sorts the rest by lowest address,
// and puts a place that has but one child out of the way. It returns what remains of the place, nil for
// nothing.
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
