// SPDX-License-Identifier: Apache-2.0

package solver

// solve finds the best choice with at most limit pairs beyond PIX and marks it in the places. It reports
// whether such a choice exists and was found within the budget.
func (t *tables) solve(limit int) (cost, bool) {
	t.limit, t.entries = limit, t.entries[:0]
	all := t.table(t.root)
	if t.budget < 0 {
		return cost{}, false
	}
	for i := all.from; i < all.to; i++ {
		e := &t.entries[i]
		if e.GPUs == t.GPUs && e.VFs == t.VFs && e.mix == t.mixing.wanted && (t.loose || e.Extras == t.extras) {
			t.choose(t.root, i)
			return e.cost, true
		}
	}
	return cost{}, false
}

// choose traces an entry of a place back to the entries that it consists of.
func (t *tables) choose(n *Place, i int32) {
	n.Chosen = t.entries[i].Counts
	if n.Kind == Group { // the table of a group is based on the table of its cards
		i = t.entries[i].before
	}
	for k := len(n.Children) - 1; k > 0; k-- {
		t.choose(n.Children[k], t.entries[i].last)
		i = t.entries[i].before
	}
	if len(n.Children) > 0 {
		t.choose(n.Children[0], i)
	}
}

// stepsPerPlace is the fixed cost of a place, in steps.
const stepsPerPlace = 8

// table builds the table of a place.
func (t *tables) table(n *Place) span {
	t.budget -= stepsPerPlace
	if n.Kind == Card {
		return t.cardTable(n)
	}
	var made span
	var part Content // of the children merged until now
	for i, child := range n.Children {
		last := t.table(child)
		part.Add(child.Content)
		if i == 0 {
			made = last
		} else {
			m := merge{tables: t, place: n, part: part, before: made, last: last}
			if t.mixing.any() {
				m.floor = n.floors[i]
			}
			made = m.table()
		}
	}
	switch n.Kind {
	case Group:
		return t.groupTable(n, made)
	case Node:
		breakNode(n, t.entries[made.from:made.to])
	}
	return made
}

// pin restricts the search to the marked counts, or removes the restriction.
func (n *Place) pin(on bool) {
	n.fixedGPUs, n.fixedVFs = anyNumber, anyNumber
	if on && n.Kind == Card {
		n.fixedGPUs = n.Chosen.GPUs
	} else if on && n.Kind == Group {
		n.fixedVFs = n.Chosen.VFs
	}
	for _, child := range n.Children {
		child.pin(on)
	}
}

// spread marks a choice without search: it fills one child after another with GPUs and VFs that form PIX
// pairs, then with the remaining devices. It is used only for machines far larger than existing ones.
func (n *Place) spread(s *Shares, gpus, vfs int) {
	n.Chosen = Counts{GPUs: gpus, VFs: vfs}
	for _, child := range n.Children {
		child.Chosen = Counts{GPUs: child.GPUs.Held, VFs: child.VFs.Held}
		gpus -= child.GPUs.Held
		vfs -= child.VFs.Held
	}
	if n.Kind == Group { // the children are cards
		vfs = 0
	}
	for _, pairsOnly := range []bool{true, false} {
		for _, child := range n.Children {
			g, v := min(gpus, child.GPUs.Most-child.Chosen.GPUs), min(vfs, child.VFs.Most-child.Chosen.VFs)
			if pairsOnly && s.Pairs > 0 && n.Kind != Group {
				g = min(g, max(child.mostPIX/s.PerGPU-child.Chosen.GPUs, 0))
				v = min(v, max(child.mostPIX/s.PerVF-child.Chosen.VFs, 0))
			}
			child.Chosen.GPUs += g
			child.Chosen.VFs += v
			gpus -= g
			vfs -= v
		}
	}
	for _, child := range n.Children {
		child.spread(s, child.Chosen.GPUs, child.Chosen.VFs)
	}
}
