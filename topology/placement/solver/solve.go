package solver

// solve finds the best choice with at most limit pairs beyond PIX and marks it in the places. It reports
// whether there is one and it was found before the budget was spent.
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

// choose follows an entry of a place back to what it was made of.
func (s *Solver) choose(n *Place, i int32) {
	n.Chosen = s.entries[i].Counts
	if n.Kind == Group { // its table is made of that of the cards
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

// stepsPerPlace is the work that a place makes whatever its tables hold, in steps.
const stepsPerPlace = 8

// table makes the table of a place.
func (s *Solver) table(n *Place) span {
	s.budget -= stepsPerPlace
	if n.Kind == Card {
		return s.cardTable(n)
	}
	var t span
	var part Content // of the children so far
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

// fewest is how many of a half have to come from a part of the tree: those held there, and those that the
// rest does not have.
func fewest(wanted int, part, all Tally) int {
	return max(part.Held, wanted-(all.Most-part.Most))
}

// meet adds pairs that are made at a place: their level, whether they are redirected, and the bridges they
// save against going up to the root complex.
func (s *Solver) meet(n *Place, c *cost, pairs int64) {
	c.addPairs(n.Level, pairs)
	if n.Level.SameSwitch() {
		c[termBridges] += pairs * (n.Redirect<<bridgesShift + int64(1-2*n.Depth))
	}
}

// within reports whether a part of the tree that has made some pairs beyond PIX can still become part of a
// choice within the limit. Devices without a partner in it will make pairs beyond PIX too, and the rest of
// the tree can have so many PIX pairs only.
func (s *Solver) within(part *Content, beyond, ofGPUs, ofVFs int) bool {
	pix := min(ofGPUs, ofVFs) - beyond
	return beyond+max(ofGPUs-ofVFs, ofVFs-ofGPUs) <= s.limit &&
		pix+s.root.mostPIX-part.mostPIX >= s.Pairs-s.limit
}

// fewestVFs is how many VFs must at least be taken beside so many GPUs for no more pairs to be beyond PIX
// than the limit allows.
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

// slack is how many extras the GPUs and the VFs of an entry can have at most.
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
