package placement

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// finish hangs the root complexes below their NUMA nodes and brings everything into order.
func (p *places) finish(vfs int) {
	for i := range p.complexes {
		c := &p.complexes[i]
		c.place.parent = p.node(c.numa)
	}
	p.listChildren()
	p.listPFs()
	p.root = p.settle(p.root, vfs)
	if p.root != nil {
		p.root.parent = nil
	}
}

// node finds the place of a NUMA node; one that is not known is anywhere in the world.
func (p *places) node(n topology.NUMANode) *place {
	number, known := n.Number()
	if p.nodes <= 1 {
		number, known = 0, true
	}
	if !known {
		return p.root
	}
	for _, node := range p.numa {
		if node.number == number {
			return node.place
		}
	}
	p.numa = append(p.numa, numaNode{number, p.new(nodePlace, p.system)})
	return p.numa[len(p.numa)-1].place
}

// listChildren gives every place the list of its children.
func (p *places) listChildren() {
	for _, n := range p.all[1:] {
		n.parent.below++
	}
	room := arena[*place]{make([]*place, len(p.all))}
	for _, n := range p.all[1:] {
		if n.parent.children == nil {
			n.parent.children = room.take(n.parent.below)[:0]
		}
		n.parent.children = append(n.parent.children, n)
	}
}

// listPFs gives every group the list of its PFs.
func (p *places) listPFs() {
	slices.SortFunc(p.pfs, func(a, b *pf) int {
		return cmp.Or(cmp.Compare(a.group.number, b.group.number), a.address.Compare(b.address))
	})
	for from, to := 0, 0; from < len(p.pfs); from = to {
		group := p.pfs[from].group
		for to < len(p.pfs) && p.pfs[to].group == group {
			to++
		}
		group.pfs = p.pfs[from:to]
	}
}

// settle counts what is below, leaves out what nothing can be chosen from, sorts the rest by lowest address, and puts a place that has
// but one child out of the way. It returns what remains of the place, nil for nothing.
func (p *places) settle(n *place, vfs int) *place {
	kept := n.children[:0]
	for _, child := range n.children {
		settled := p.settle(child, vfs)
		n.content.add(child.content)
		if settled != nil {
			settled.parent = n
			kept = append(kept, settled)
		}
	}
	n.children = kept
	slices.SortFunc(n.children, func(a, b *place) int { return a.first.Compare(b.first) })
	if n.gpus.most+n.vfs.most == 0 {
		return nil
	}
	n.setFirst()
	switch n.kind {
	case groupPlace:
		p.planFill(n, vfs)
	case cardPlace, nodePlace:
	default:
		if len(n.children) == 1 {
			return n.children[0]
		}
	}
	return n
}

// setFirst finds the lowest address of a place whose children are in order.
func (n *place) setFirst() {
	found := false
	see := func(a topology.Address) {
		if !found || a.Compare(n.first) < 0 {
			n.first, found = a, true
		}
	}
	for _, l := range n.pools {
		for _, d := range l.devices {
			see(d.Address)
		}
	}
	for _, f := range n.pfs {
		for _, l := range f.pools {
			for _, d := range l.devices {
				see(d.Address)
			}
		}
	}
	for _, child := range n.children {
		see(child.first)
	}
}

// planFill decides from which PF the next VF of a group comes, for as many as can be wanted: from the one that gives the fewest at that
// moment, then from the one with the least load, then from the lowest. As what a PF gives grows with every VF taken, this costs least
// for any number of VFs.
func (p *places) planFill(n *place, vfs int) {
	var c fillCost
	for _, f := range n.pfs {
		for f.taken = 0; f.taken < f.held; {
			c.take(f)
		}
	}
	further := min(n.vfs.most, vfs) - n.vfs.held
	n.fill, n.fillCosts = p.fills.take(further), p.fillCosts.take(further+1)
	n.fillCosts[0] = c
	for k := range further {
		best := -1
		for i, f := range n.pfs {
			if f.taken < f.most && (best < 0 || f.before(n.pfs[best])) {
				best = i
			}
		}
		c.take(n.pfs[best])
		n.fill[k], n.fillCosts[k+1] = int32(best), c
	}
}

// take adds what the next VF of a PF costs.
func (c *fillCost) take(f *pf) {
	c.shared += int64(f.taken)
	c.load += int64(f.load)
	f.taken++
}

// before reports whether the next VF costs less here than on another PF.
func (f *pf) before(g *pf) bool {
	return f.taken < g.taken || f.taken == g.taken && f.load < g.load
}

// left is how many same-switch pairs can still be made when what is marked is taken.
func (p *places) left() int {
	sum := 0
	for _, g := range p.all {
		if g.kind == groupPlace && g.depth > 0 {
			sum += min(g.gpus.free()-g.chosen.gpus+g.gpus.held, g.vfs.free()-g.chosen.vfs+g.vfs.held)
		}
	}
	return sum
}

// appendOrder describes what is marked for comparing answers that cost the same: level by level from the root down, from the highest
// address to the lowest, how many GPUs, VFs and extras are taken, and of which resources. The least is the answer with the lowest addresses. The queue is room to
// work in, and returned for the next time.
func (n *place) appendOrder(order []int, queue []*place) ([]int, []*place) {
	queue = append(queue[:0], n)
	for i := 0; i < len(queue); i++ {
		for _, child := range slices.Backward(queue[i].children) {
			order = append(order, child.chosen.gpus, child.chosen.vfs, child.chosen.extras, int(child.chosen.mix))
			queue = append(queue, child)
		}
	}
	return order, queue
}
