package placement

import (
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// finish hangs the root complexes below their NUMA nodes and brings everything into order.
func (p *places) finish(vfs int) {
	for _, c := range p.complexes {
		number, known := c.numa.Number()
		if p.nodes <= 1 {
			number, known = 0, true
		}
		above := p.root
		if known {
			if above = p.numa[number]; above == nil {
				above = p.new(nodePlace, p.system)
				p.numa[number] = above
			}
		}
		c.place.parent = above
		above.children = append(above.children, c.place)
	}
	p.root = p.root.settle(vfs)
	if p.root != nil {
		p.root.parent = nil
	}
}

// settle counts what is below, leaves out what nothing can be chosen from, sorts the rest by lowest address, and puts a place that has
// but one child out of the way. It returns what remains of the place, nil for nothing.
func (n *place) settle(vfs int) *place {
	kept := n.children[:0]
	for _, child := range n.children {
		settled := child.settle(vfs)
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
		n.planFill(vfs)
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
	for _, d := range n.devices {
		see(d.Address)
	}
	for _, f := range n.pfs {
		for _, d := range f.devices {
			see(d.Address)
		}
	}
	for _, child := range n.children {
		see(child.first)
	}
}

// planFill decides from which PF the next VF of a group comes, for as many as can be wanted: from the one with the least load at that
// moment, then from the lowest. As the load grows with every VF taken, this costs least for any number of VFs.
func (n *place) planFill(vfs int) {
	slices.SortFunc(n.pfs, func(a, b *pf) int { return a.address.Compare(b.address) })
	taken := make([]int, len(n.pfs))
	total := int64(0)
	for i, f := range n.pfs {
		for ; taken[i] < f.held; taken[i]++ {
			total += int64(f.load + taken[i])
		}
	}
	further := min(n.vfs.most, vfs) - n.vfs.held
	n.fill = make([]int, 0, further)
	n.loads = append(make([]int64, 0, further+1), total)
	for range further {
		best := -1
		for i, f := range n.pfs {
			if taken[i] < len(f.devices) && (best < 0 || f.load+taken[i] < n.pfs[best].load+taken[best]) {
				best = i
			}
		}
		total += int64(n.pfs[best].load + taken[best])
		taken[best]++
		n.fill = append(n.fill, best)
		n.loads = append(n.loads, total)
	}
}

// left is how many same-switch pairs can still be made when what is marked is taken.
func (p *places) left() int {
	sum := 0
	for _, g := range p.all {
		if g.depth > 0 {
			sum += min(g.gpus.free()-g.chosen.gpus+g.gpus.held, g.vfs.free()-g.chosen.vfs+g.vfs.held)
		}
	}
	return sum
}

// order describes what is marked for comparing answers that cost the same: level by level from the root down, from the highest address
// to the lowest, how many GPUs, VFs and extras are taken. The least is the answer with the lowest addresses.
func (n *place) order() []int {
	var counts []int
	for level := []*place{n}; len(level) > 0; {
		var below []*place
		for _, p := range level {
			for _, child := range slices.Backward(p.children) {
				counts = append(counts, child.chosen.gpus, child.chosen.vfs, child.chosen.extras)
				below = append(below, child)
			}
		}
		level = below
	}
	return counts
}
