package solver

import "slices"

// PlanFill decides from which PF the next VF of a group comes, for as many as there is room for in order,
// beyond those held: from the one that gives the fewest at that moment, then from the one with the least
// load, then from the first. As what a PF gives grows with every VF taken, this costs least for any number of
// VFs. Costs have room for one more than order. The place keeps both.
func (n *Place) PlanFill(order []int32, costs []FillCost) {
	var c FillCost
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

// take adds what the next VF of a PF costs.
func (c *FillCost) take(f *PF) {
	c.shared += int64(f.Taken)
	c.load += int64(f.Load)
	f.Taken++
}

// before reports whether the next VF costs less here than on another PF.
func (f *PF) before(g *PF) bool {
	return f.Taken < g.Taken || f.Taken == g.Taken && f.Load < g.Load
}

// countTaken counts the devices that are marked in every pool below a place.
func (s *Solver) countTaken(n *Place) {
	for _, child := range n.Children {
		s.countTaken(child)
	}
	switch n.Kind {
	case Card:
		if s.mixing.gpus {
			s.mixing.takeGPUs(n)
		} else {
			n.Pools[0].Taken = n.Chosen.GPUs
		}
	case Group:
		if s.mixing.vfs {
			s.mixing.takeVFs(n)
		} else {
			n.takeVFs()
		}
	}
}

// takeVFs counts the VFs that are marked of the PFs of a group.
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

// takeGPUs counts the GPUs that are marked in the pools of a card.
func (m *mixing) takeGPUs(card *Place) {
	for i := range card.Pools {
		card.Pools[i].Taken = m.gpuFields[card.Pools[i].Resource].taken(card.Chosen.mix)
	}
}

// takeVFs counts the VFs that are marked in the pools of a group.
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
