package solver

import "slices"

// grid finds the entry for given counts while a table is being made.
type grid struct {
	solver  *Solver
	place   *Place
	part    Content // of the place's children so far
	before  span
	last    span
	lowGPUs int
	lowVFs  int
	width   int // slots for the numbers of VFs
	extras  int // slots for the numbers of extras
	slots   []int32
	mixed   map[Counts]int // where there are several resources: the slot
	floor   mix
}

const noEntry = -1

// bounds is the least and the most that the entries of a table have.
type bounds struct{ lowGPUs, highGPUs, lowVFs, highVFs, highExtras int }

func (s *Solver) bounds(t span) bounds {
	if t.from == t.to {
		return bounds{}
	}
	entries := s.entries[t.from:t.to]
	b := bounds{lowGPUs: entries[0].GPUs, highGPUs: entries[len(entries)-1].GPUs, lowVFs: entries[0].VFs}
	for i := range entries {
		b.lowVFs = min(b.lowVFs, entries[i].VFs)
		b.highVFs = max(b.highVFs, entries[i].VFs)
		b.highExtras = max(b.highExtras, entries[i].Extras)
	}
	return b
}

// open makes an empty grid for what two tables make together. The numbers of VFs are counted from the fewest
// that so many GPUs can have under the limit, so that a tight limit makes a narrow grid.
func (g *grid) open(a, b bounds) {
	s := g.solver
	if s.mixing.any() {
		g.mixed, g.slots = map[Counts]int{}, s.slots[:0]
		return
	}
	g.lowGPUs, g.lowVFs, g.extras = a.lowGPUs+b.lowGPUs, a.lowVFs+b.lowVFs, 1
	g.width = min(a.highVFs+b.highVFs, s.VFs) - g.lowVFs + 1
	if s.Pairs > 0 {
		ofGPUs, ofVFs := s.slack()
		g.width = min(g.width, (2*s.limit+ofGPUs+ofVFs)/s.PerVF+2)
	}
	if !s.loose {
		g.extras += s.extras
	}
	size := max(min(a.highGPUs+b.highGPUs, s.GPUs)-g.lowGPUs+1, 0) * max(g.width, 0) * g.extras
	if s.budget -= size / slotsPerStep; s.budget < 0 {
		return
	}
	s.slots = slices.Grow(s.slots[:0], size)
	g.slots = s.slots[:size]
	for i := range g.slots {
		g.slots[i] = noEntry
	}
}

// slotsPerStep is how many slots are cleared in the time of a step.
const slotsPerStep = 4

func (g *grid) slot(e Counts) *int32 {
	if g.mixed != nil {
		return g.mixedSlot(e)
	}
	i := (e.GPUs-g.lowGPUs)*g.width + e.VFs
	if g.width > 1 {
		i -= max(g.lowVFs, g.solver.fewestVFs(e.GPUs))
	} else {
		i -= g.lowVFs
	}
	if g.extras > 1 {
		i = i*g.extras + e.Extras
	}
	return &g.slots[i]
}

func (g *grid) mixedSlot(e Counts) *int32 {
	i, known := g.mixed[e]
	if !known {
		i = len(g.slots)
		g.mixed[e] = i
		g.slots = append(g.slots, noEntry)
	}
	return &g.slots[i]
}

// combine keeps the entry that two make together, unless it is beyond the limit or costs more than one with
// the same counts. Of two that cost the same the one stands that takes less from the last child: fewer GPUs,
// then fewer VFs, then fewer extras. So the lowest addresses are taken first.
func (g *grid) combine(i, j int32) {
	s := g.solver
	a, b := &s.entries[i], &s.entries[j]
	ca, cb := s.cost(g.before, i), s.cost(g.last, j)
	t := Counts{a.GPUs + b.GPUs, a.VFs + b.VFs, a.Extras + b.Extras, a.mix + b.mix}
	if g.mixed != nil && !(s.mixing.fits(t.mix) && s.mixing.reaches(t.mix, g.floor)) {
		return
	}
	pairs := 0
	if g.place.Kind != Group { // of cards, without VFs, hence without pairs
		if !s.loose && (t.Extras > s.extras || t.Extras+s.mostExtras(s.GPUs-t.GPUs, s.VFs-t.VFs) < s.extras) {
			return
		}
		ofGPUs, ofVFs := s.units(t.GPUs, t.VFs, t.Extras)
		pairs = min(ofGPUs, ofVFs) - s.made(a) - s.made(b)
		if beyond := ca.beyondPIX() + cb.beyondPIX() + pairs; !s.within(&g.part, beyond, ofGPUs, ofVFs) {
			return
		}
	}
	var here cost
	s.meet(g.place, &here, int64(pairs))
	here[termLocality] = int64(a.GPUs*b.GPUs) * g.place.near
	slot := g.slot(t)
	if *slot == noEntry {
		*slot = int32(len(s.scratch))
		s.scratch = append(s.scratch, priced{entry: entry{Counts: t}})
	} else if than := &s.scratch[*slot]; !less(ca, cb, &here, &than.cost, j < than.last) {
		return
	}
	e := &s.scratch[*slot]
	e.before, e.last = i, j
	for k := range e.cost {
		e.cost[k] = ca[k] + cb[k] + here[k]
	}
}

// less reports whether two costs and what is added come to less than another; otherwise says for the same.
func less(a, b, here, than *cost, otherwise bool) bool {
	for k := range than {
		if c := a[k] + b[k] + here[k]; c != than[k] {
			return c < than[k]
		}
	}
	return otherwise
}

// collect moves the entries of a grid, in order, to a table of their own.
func (g *grid) collect() span {
	s := g.solver
	s.costs = s.costs[:g.before.costs] // those of the children are in the grid now
	t := s.begin()
	if g.mixed != nil {
		s.slots = g.slots
		s.sortSlots(g.slots)
	}
	for _, i := range g.slots {
		if i != noEntry {
			s.push(s.scratch[i].entry, &s.scratch[i].cost)
		}
	}
	return s.end(t, t)
}
