// SPDX-License-Identifier: Apache-2.0

package solver

// solve finds the best choice with at most limit pairs beyond PIX and marks it in the places. It reports
// whether such a choice exists and was found within the budget.
func (s *Solver) solve(limit int) (cost, bool) {
	s.limit, s.entries = limit, s.entries[:0]
	table := s.table(s.root)
	if s.budget < 0 {
		return cost{}, false
	}
	for i := table.from; i < table.to; i++ {
		e := &s.entries[i]
		if e.GPUs == s.GPUs && e.VFs == s.VFs && e.mix == s.mixing.wanted && (s.loose || e.Extras == s.extras) {
			s.choose(s.root, i)
			return e.cost, true
		}
	}
	return cost{}, false
}

// choose traces an entry of a place back to the entries that it consists of.
func (s *Solver) choose(n *Place, i int32) {
	n.Chosen = s.entries[i].Counts
	if n.Kind == Group { // the table of a group is based on the table of its cards
		i = s.entries[i].before
	}
	for k := len(n.Children) - 1; k > 0; k-- {
		s.choose(n.Children[k], s.entries[i].last)
		i = s.entries[i].before
	}
	if len(n.Children) > 0 {
		s.choose(n.Children[0], i)
	}
}

// stepsPerPlace is the fixed cost of a place, in steps.
const stepsPerPlace = 8

// table builds the table of a place.
func (s *Solver) table(n *Place) span {
	s.budget -= stepsPerPlace
	if n.Kind == Card {
		return s.cardTable(n)
	}
	var t span
	var part Content // of the children merged until now
	for i, child := range n.Children {
		last := s.table(child)
		part.Add(child.Content)
		if i == 0 {
			t = last
		} else {
			m := merge{Solver: s, place: n, part: part, before: t, last: last}
			if s.mixing.any() {
				m.floor = n.floors[i]
			}
			t = m.table()
		}
	}
	switch n.Kind {
	case Group:
		return s.groupTable(n, t)
	case Node:
		s.breakNode(n, t)
	}
	return t
}

// fewest returns the minimum number of devices that have to come from a part of the tree: the held devices
// and the devices that the rest of the tree lacks.
func fewest(wanted int, part, all Tally) int {
	return max(part.Held, wanted-(all.Most-part.Most))
}

// meet adds the cost of pairs that are formed at a place: their level, whether they are redirected, and the
// bridges saved compared with the path to the root complex.
func (s *Solver) meet(n *Place, c *cost, pairs int64) {
	c.addPairs(n.Level, pairs)
	if n.Level.SameSwitch() {
		c[termBridges] += pairs * (n.Redirect<<bridgesShift + int64(1-2*n.Depth))
	}
}

// within reports whether a part of the tree with the given pairs beyond PIX can be part of a choice within
// the limit. Devices of the part without a partner add pairs beyond PIX, and the rest of the tree has a
// limited number of PIX pairs.
func (s *Solver) within(part *Content, beyond, ofGPUs, ofVFs int) bool {
	pix := min(ofGPUs, ofVFs) - beyond
	return beyond+max(ofGPUs-ofVFs, ofVFs-ofGPUs) <= s.limit &&
		pix+s.root.mostPIX-part.mostPIX >= s.Pairs-s.limit
}

// fewestVFs returns the minimum number of VFs for a number of GPUs such that the pairs beyond PIX stay within
// the limit.
func (s *Solver) fewestVFs(gpus int) int {
	if s.Pairs == 0 {
		return 0
	}
	_, ofVFs := s.slack()
	if d := s.PerGPU*gpus - s.limit - ofVFs; d > 0 {
		return (d + s.PerVF - 1) / s.PerVF
	}
	return 0
}

// slack returns the maximum number of extras among the GPUs and VFs of an entry.
func (s *Solver) slack() (ofGPUs, ofVFs int) {
	switch {
	case !s.loose:
		return s.GPUExtra, s.VFExtra
	case s.GPUExtra > 0:
		return s.GPUs, 0
	default:
		return 0, s.VFs
	}
}
