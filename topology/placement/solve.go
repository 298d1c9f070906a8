package placement

// solver finds the cheapest choice by dynamic programming over the tree of places: for every place it keeps the best way to take each
// number of GPUs, VFs and extras from below it. The costs of disjoint places add up, and how many pairs are made below a place
// depends on these numbers alone, since on a tree it is best to make every pair as low as possible.
type solver struct {
	shares
	mixing    mixing
	root      *place
	most      int  // steps for one attempt
	manyPairs int  // see effort
	limit     int  // most pairs beyond PIX that a choice may have
	loose     bool // extras follow the VFs rather than being tried in all numbers
	budget    int  // steps left; negative when the search was given up

	entries []entry // all tables
	costs   []cost
	scratch []priced // the table being made
	slots   []int32
	rowRoom rowRoom
}

// solve finds the best choice with at most limit pairs beyond PIX and marks it in the places. It reports whether there is one
// and it was found before the budget was spent.
func (s *solver) solve(limit int) (cost, bool) {
	s.limit = limit
	s.entries, s.costs = s.entries[:0], s.costs[:0]
	table := s.table(s.root)
	if s.budget < 0 {
		return cost{}, false
	}
	for i := table.from; i < table.to; i++ {
		if e := &s.entries[i]; e.gpus == s.gpus && e.vfs == s.vfs && e.mix == s.mixing.wanted && (s.loose || e.extras == s.extras) {
			s.choose(s.root, i)
			return *s.cost(table, i), true
		}
	}
	return cost{}, false
}

// choose follows an entry of a place back to what it was made of.
func (s *solver) choose(n *place, i int32) {
	n.chosen = s.entries[i].counts
	if n.kind == groupPlace { // its table is made of that of the cards
		i = s.entries[i].before
	}
	for k := len(n.children) - 1; k > 0; k-- {
		s.choose(n.children[k], s.entries[i].last)
		i = s.entries[i].before
	}
	if len(n.children) > 0 {
		s.choose(n.children[0], i)
	}
}

// stepsPerPlace is the work that a place makes whatever its tables hold, in steps.
const stepsPerPlace = 8

// table makes the table of a place.
func (s *solver) table(n *place) span {
	s.budget -= stepsPerPlace
	if n.kind == cardPlace {
		return s.cardTable(n)
	}
	var t span
	var part content // of the children so far
	for i, child := range n.children {
		last := s.table(child)
		part.add(child.content)
		if i == 0 {
			t = last
		} else {
			t = s.merge(n, i, part, t, last)
		}
	}
	switch n.kind {
	case groupPlace:
		return s.groupTable(n, t)
	case nodePlace:
		s.breakNode(n, t)
	}
	return t
}

// fewest is how many of a half have to come from a part of the tree: those held there, and those that the rest does not have.
func fewest(wanted int, part, all tally) int {
	return max(part.held, wanted-(all.most-part.most))
}

// meet adds pairs that are made at a place: their level, whether they are redirected, and the bridges they save against going up to
// the root complex.
func (s *solver) meet(n *place, c *cost, pairs int64) {
	c.addPairs(n.level, pairs)
	if n.level.SameSwitch() {
		c[termBridges] += pairs * (n.redirect<<bridgesShift + int64(1-2*n.depth))
	}
}

// within reports whether a part of the tree that has made some pairs beyond PIX can still become part of a choice within the limit.
// Devices without a partner in it will make pairs beyond PIX too, and the rest of the tree can have so many PIX pairs only.
func (s *solver) within(part *content, beyond, ofGPUs, ofVFs int) bool {
	pix := min(ofGPUs, ofVFs) - beyond
	return beyond+max(ofGPUs-ofVFs, ofVFs-ofGPUs) <= s.limit && pix+s.root.mostPIX-part.mostPIX >= s.pairs-s.limit
}

// merge combines the table of the children before with that of the last, the k-th.
func (s *solver) merge(n *place, k int, part content, before, last span) span {
	s.scratch = s.scratch[:0]
	g := grid{solver: s, place: n, part: part, before: before, last: last}
	steps := 1
	if s.mixing.any() {
		g.floor, steps = n.floors[k], stepsPerMixed
	}
	g.open(s.bounds(before), s.bounds(last))
	lowGPUs, lowVFs := fewest(s.gpus, part.gpus, s.root.gpus), fewest(s.vfs, part.vfs, s.root.vfs)
	if n.kind == groupPlace {
		lowVFs = 0 // VFs are added when the cards have been merged
	}
	if pairs := int(before.to-before.from) * int(last.to-last.from); pairs > s.manyPairs && s.budget >= 0 && !s.mixing.any() {
		g.mergeRows(before, last, lowGPUs, lowVFs)
		return g.collect()
	}
	entries := s.entries
	for j := last.from; j < last.to; j++ {
		b := &entries[j]
		from, to := before.withGPUs(entries, lowGPUs-b.gpus, s.gpus-b.gpus)
		if s.budget -= steps * int(to-from); s.budget < 0 {
			break
		}
		for i := from; i < to; i++ {
			if v := entries[i].vfs + b.vfs; lowVFs <= v && v <= s.vfs {
				g.combine(i, j)
			}
		}
	}
	return g.collect()
}

// made is the number of pairs that an entry makes below its place.
func (s *solver) made(e *entry) int {
	ofGPUs, ofVFs := s.units(e.gpus, e.vfs, e.extras)
	return min(ofGPUs, ofVFs)
}
