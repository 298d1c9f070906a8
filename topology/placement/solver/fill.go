// SPDX-License-Identifier: Apache-2.0

package solver

import (
	"cmp"
	"slices"
)

// PlanFill decides from which PF the next VF of a group comes, for as many VFs as order has room for, beyond
// the held ones: from a PF that is not degraded, then from the PF with the fewest taken VFs, then from the
// NIC with the fewest, then from the PF with the least load, then from the first PF. The cost of a PF and of
// its NIC grows with every VF taken, so this order is cheapest for any number of VFs.
// Costs must have one element more than order. The place keeps both slices.
func (n *Place) PlanFill(order []int32, costs []FillCost) {
	var c FillCost
	for _, f := range n.PFs {
		f.NIC.taken = 0
	}
	for _, f := range n.PFs {
		for f.Taken = 0; f.Taken < f.Held; {
			c.take(f)
		}
	}
	n.fill, n.fillCosts = order, costs
	n.fillCosts[0] = c
	for k := range order {
		best := -1
		for i, f := range n.PFs {
			if f.Taken < f.Most && (best < 0 || f.before(n.PFs[best])) {
				best = i
			}
		}
		c.take(n.PFs[best])
		n.fill[k], n.fillCosts[k+1] = int32(best), c
	}
}

// take adds the cost of the next VF of a PF.
func (c *FillCost) take(f *PF) {
	c.degraded += number(f.Degraded)
	c.shared += int64(f.Taken)<<sharedShift + int64(f.NIC.taken)
	c.load += int64(f.Load)
	f.Taken++
	f.NIC.taken++
}

// before reports whether the next VF of f is cheaper than the next VF of g.
func (f *PF) before(g *PF) bool {
	return cmp.Or(cmp.Compare(number(f.Degraded), number(g.Degraded)), cmp.Compare(f.Taken, g.Taken),
		cmp.Compare(f.NIC.taken, g.NIC.taken), cmp.Compare(f.Load, g.Load)) < 0
}

// number returns 1 for true.
func number(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// countTaken counts the marked devices of every pool below a place.
func (m *mixing) countTaken(n *Place) {
	for _, child := range n.Children {
		m.countTaken(child)
	}
	switch n.Kind {
	case Card:
		if m.gpus {
			m.takeGPUs(n)
		} else {
			n.Pools[0].Taken = n.Chosen.GPUs
		}
	case Group:
		if m.vfs {
			m.takeVFs(n)
		} else {
			n.takeVFs()
		}
	}
}

// takeVFs counts the marked VFs of the PFs of a group.
func (n *Place) takeVFs() {
	for _, f := range n.PFs {
		f.Taken = f.Held
	}
	for _, i := range n.fill[:n.Chosen.VFs-n.VFs.Held] {
		n.PFs[i].Taken++
	}
	for _, f := range n.PFs {
		f.Pools[0].Taken = f.Taken
	}
}

// takeGPUs counts the marked GPUs of the pools of a card.
func (m *mixing) takeGPUs(card *Place) {
	for i := range card.Pools {
		card.Pools[i].Taken = m.gpuFields[card.Pools[i].Resource].taken(card.Chosen.mix)
	}
}

// takeVFs counts the marked VFs of the pools of a group.
func (m *mixing) takeVFs(group *Place) {
	if len(group.PFs) == 0 {
		return
	}
	wanted := group.Chosen.mix & m.vfMask
	o := group.offers[slices.IndexFunc(group.offers, func(o offer) bool { return o.mix == wanted })]
	for i, f := range slices.Backward(group.PFs) {
		f.Taken = 0
		for k := range f.Pools {
			l := &f.Pools[k]
			l.Taken = m.vfFields[l.Resource].taken(o.last)
			f.Taken += l.Taken
		}
		if i > 0 {
			o = group.stages[i-1][o.before]
		}
	}
}
