package placement

// solver finds the cheapest choice by dynamic programming over the tree of places: for every place it keeps the best way to take each
// number of GPUs, VFs and extras from below it. The costs of disjoint places add up, and how many pairs are made below a place
// depends on these numbers alone, since on a tree it is best to make every pair as low as possible.
type solver struct {
	shares
	root   *place
	limit  int  // most pairs beyond PIX that a choice may have
	loose  bool // extras follow the VFs rather than being tried in all numbers
	budget int  // steps left; negative when the search was given up

	entries []entry // all tables
	scratch []entry // the table being made
	slots   []int32
}

// solve finds the best choice with at most limit pairs beyond PIX and marks it in the places. It reports whether there is one
// and it was found before the budget was spent.
func (s *solver) solve(limit int) (cost, bool) {
	s.limit = limit
	s.entries = s.entries[:0]
	table := s.table(s.root)
	if s.budget < 0 {
		return cost{}, false
	}
	for i := table.from; i < table.to; i++ {
		if e := &s.entries[i]; e.gpus == s.gpus && e.vfs == s.vfs && (s.loose || e.extras == s.extras) {
			s.choose(s.root, i)
			return e.cost, true
		}
	}
	return cost{}, false
}

// choose follows an entry of a place back to what it was made of.
func (s *solver) choose(n *place, i int32) {
	n.chosen = s.entries[i]
	if n.kind == groupPlace || n.kind == nodePlace { // the last table is not that of a child
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

// table makes the table of a place.
func (s *solver) table(n *place) span {
	if n.kind == cardPlace {
		return s.cardTable(n)
	}
	var t span
	var gpus, vfs tally
	for i, child := range n.children {
		last := s.table(child)
		gpus.add(child.gpus)
		vfs.add(child.vfs)
		if i == 0 {
			t = last
		} else {
			t = s.merge(n, t, last, gpus, vfs)
		}
	}
	switch n.kind {
	case groupPlace:
		return s.groupTable(n, t)
	case nodePlace:
		return s.nodeTable(n, t)
	default:
		return t
	}
}

// fewest is how many of a half have to come from a part of the tree: those held there, and those that the rest does not have.
func fewest(wanted int, part, all tally) int {
	return max(part.held, wanted-(all.most-part.most))
}

// cardTable lists how many GPUs a card can give.
func (s *solver) cardTable(n *place) span {
	from, low, high := len(s.entries), fewest(s.gpus, n.gpus, s.root.gpus), min(n.gpus.most, s.gpus)
	if n.fixed >= 0 {
		low, high = n.fixed, n.fixed
	}
	for g := low; g <= high; g++ {
		e := entry{gpus: g}
		e.cost[termCards] = breaking(n.gpus.free(), g-n.gpus.held)
		s.entries = append(s.entries, e)
	}
	return span{int32(from), int32(len(s.entries))}
}

// groupTable adds the VFs of a group to the table of its cards.
func (s *solver) groupTable(n *place, cards span) span {
	if len(n.children) == 0 {
		s.entries = append(s.entries, entry{})
		cards = span{int32(len(s.entries) - 1), int32(len(s.entries))}
	}
	from := len(s.entries)
	for i := cards.from; i < cards.to; i++ {
		low, high := s.vfRange(n, s.entries[i].gpus)
		for v := low; v <= high; v++ {
			s.groupEntries(n, i, v)
		}
	}
	return span{int32(from), int32(len(s.entries))}
}

// vfRange is how many VFs a group can give beside so many GPUs.
func (s *solver) vfRange(n *place, gpus int) (low, high int) {
	if n.fixed >= 0 {
		return n.fixed, n.fixed
	}
	low, high = fewest(s.vfs, n.vfs, s.root.vfs), min(n.vfs.most, s.vfs)
	if s.pairs > 0 {
		low = max(low, s.fewestVFs(gpus))
		high = min(high, (s.perGPU*gpus+s.gpuExtra+s.limit)/s.perVF)
	}
	return low, high
}

// groupEntries adds the entries for some GPUs, those of entry i, and some VFs, with every number of extras.
func (s *solver) groupEntries(n *place, i int32, vfs int) {
	gpus := s.entries[i].gpus
	low, high := s.extrasRange(gpus, vfs)
	for x := low; x <= high; x++ {
		s.budget--
		ofGPUs, ofVFs := s.units(gpus, vfs, x)
		e := entry{gpus: gpus, vfs: vfs, extras: x, before: i, cost: s.entries[i].cost}
		s.meet(n, &e.cost, int64(min(ofGPUs, ofVFs)))
		if !s.within(&e.cost, ofGPUs, ofVFs) {
			continue
		}
		e.cost[termBridges] += int64((ofGPUs + ofVFs) * n.depth)
		e.cost[termLoad] += n.loads[vfs-n.vfs.held]
		g, v := gpus-n.gpus.held, vfs-n.vfs.held
		e.cost[termStranded] += int64(min(n.gpus.free(), n.vfs.free()) - min(n.gpus.free()-g, n.vfs.free()-v))
		e.cost[termSwitches] += breaking(n.gpus.free(), g)
		s.entries = append(s.entries, e)
	}
}

// extrasRange is how many extras some GPUs and VFs can have. Those elsewhere must be able to take the rest, one each.
func (s *solver) extrasRange(gpus, vfs int) (low, high int) {
	high = s.mostExtras(gpus, vfs)
	if s.loose {
		follow := vfs - s.perGPU*gpus
		if s.vfEx > 0 {
			follow = gpus - s.perVF*vfs
		}
		follow = min(max(follow, 0), high)
		return follow, follow
	}
	return s.extras - s.mostExtras(s.gpus-gpus, s.vfs-vfs), high
}

// meet adds pairs that are made at a place: their level, and the bridges they save against going up to the root complex.
func (s *solver) meet(n *place, c *cost, pairs int64) {
	c.addPairs(n.level, pairs)
	if n.level.SameSwitch() {
		c[termBridges] += pairs * int64(1-2*n.depth)
	}
}

// within reports whether no more pairs are beyond PIX than the limit allows: those made so far, and those that devices without a
// partner below this place will make above it.
func (s *solver) within(c *cost, ofGPUs, ofVFs int) bool {
	return c.beyondPIX()+max(ofGPUs-ofVFs, ofVFs-ofGPUs) <= s.limit
}

// nodeTable adds what it costs to break a NUMA node.
func (s *solver) nodeTable(n *place, t span) span {
	from := len(s.entries)
	for i := t.from; i < t.to; i++ {
		e := s.entries[i]
		e.before = i
		e.cost[termNodes] += breaking(n.gpus.free(), e.gpus-n.gpus.held)
		e.cost[termNodeVFs] += breaking(n.vfs.free(), e.vfs-n.vfs.held)
		s.entries = append(s.entries, e)
	}
	return span{int32(from), int32(len(s.entries))}
}

// merge combines the table of the children before with that of the last. Of two ways that cost the same the one stands that takes
// less from the last child: fewer GPUs, then fewer VFs, then fewer extras. So the lowest addresses are taken first.
func (s *solver) merge(n *place, before, last span, gpus, vfs tally) span {
	s.scratch = s.scratch[:0]
	g := s.newGrid(s.bounds(before), s.bounds(last))
	lowGPUs, lowVFs := fewest(s.gpus, gpus, s.root.gpus), fewest(s.vfs, vfs, s.root.vfs)
	if n.kind == groupPlace {
		lowVFs = 0 // VFs are added when the cards have been merged
	}
	for j := last.from; j < last.to && s.budget >= 0; j++ {
		b := &s.entries[j]
		s.budget -= int(before.to - before.from)
		for i := before.from; i < before.to && s.budget >= 0; i++ {
			a := &s.entries[i]
			if g, v := a.gpus+b.gpus, a.vfs+b.vfs; g < lowGPUs || g > s.gpus || v < lowVFs || v > s.vfs {
				continue
			}
			if e, ok := s.combine(n, a, b); ok {
				e.before, e.last = i, j
				s.keep(&g, &e)
			}
		}
	}
	return s.collect(&g)
}

// combine is what taking both entries costs, and whether the result can still become a choice within the limit.
func (s *solver) combine(n *place, a, b *entry) (entry, bool) {
	e := entry{gpus: a.gpus + b.gpus, vfs: a.vfs + b.vfs, extras: a.extras + b.extras, cost: a.cost}
	e.cost.add(&b.cost)
	e.cost[termLocality] += int64(a.gpus*b.gpus) * n.near
	if n.kind == groupPlace { // cards: no VFs, hence no pairs yet
		return e, true
	}
	if !s.loose && (e.extras > s.extras || e.extras+s.mostExtras(s.gpus-e.gpus, s.vfs-e.vfs) < s.extras) {
		return e, false
	}
	ofGPUs, ofVFs := s.units(e.gpus, e.vfs, e.extras)
	s.meet(n, &e.cost, int64(min(ofGPUs, ofVFs)-s.made(a)-s.made(b)))
	return e, s.within(&e.cost, ofGPUs, ofVFs)
}

// made is the number of pairs that an entry makes below its place.
func (s *solver) made(e *entry) int {
	ofGPUs, ofVFs := s.units(e.gpus, e.vfs, e.extras)
	return min(ofGPUs, ofVFs)
}

// keep remembers an entry if it is the first of its counts or costs less than the one before.
func (s *solver) keep(g *grid, e *entry) {
	slot := g.slot(e)
	if *slot == noEntry {
		*slot = int32(len(s.scratch))
		s.scratch = append(s.scratch, *e)
	} else if old := &s.scratch[*slot]; e.cost.compare(&old.cost) < 0 {
		*old = *e
	}
}

// collect moves the entries of a grid, in order, to a table of their own.
func (s *solver) collect(g *grid) span {
	from := len(s.entries)
	for _, i := range g.slots {
		if i != noEntry {
			s.entries = append(s.entries, s.scratch[i])
		}
	}
	return span{int32(from), int32(len(s.entries))}
}
