package solver

import (
	"cmp"
	"slices"
	"sort"
)

// Solver finds the cheapest choice by dynamic programming over the tree of places: for every place it keeps
// the best way to take each number of GPUs, VFs and extras from below it. The costs of disjoint places add
// up, and how many pairs are made below a place depends on these numbers alone, since on a tree it is best to
// make every pair as low as possible.
type Solver struct {
	Shares
	mixing    mixing
	root      *Place
	cards     []*Place // in the order of the tree
	most      int      // steps for one attempt
	manyPairs int      // see Effort
	limit     int      // most pairs beyond PIX that a choice may have
	loose     bool     // extras follow the VFs rather than being tried in all numbers
	budget    int      // steps left; negative when the search was given up

	entries []entry // all tables
	costs   []cost
	scratch []priced // the table being made
	slots   []int32
	rowRoom rowRoom
}

// entry is the best way to take some GPUs, VFs and extras from a place, or from its first few children.
// Entries of one place are in ascending order of GPUs, VFs and extras.
type entry struct {
	Counts
	before, last int32 // made of: an entry for the children before the last, and one of the last child
}

// priced is an entry with what it costs.
type priced struct {
	entry
	cost cost
}

// span is a table: a range of the solver's entries. Entries stay, to be followed back; what they cost is
// needed until the table above is made, so costs are a stack.
type span struct {
	from, to int32
	costs    int32 // where the costs begin
}

// cost is what an entry of a table costs.
func (s *Solver) cost(t span, i int32) *cost { return &s.costs[t.costs+i-t.from] }

// begin makes an empty table.
func (s *Solver) begin() span {
	return span{from: int32(len(s.entries)), costs: int32(len(s.costs))}
}

// stepsPerEntry is what it takes to keep an entry, in steps.
const stepsPerEntry = 8

// push adds an entry to the last table.
func (s *Solver) push(e entry, c *cost) {
	s.budget -= stepsPerEntry
	if n := len(s.entries); n == cap(s.entries) {
		s.entries = slices.Grow(s.entries, n) // twice the room each time, where append makes a quarter
	}
	if n := len(s.costs); n == cap(s.costs) {
		s.costs = slices.Grow(s.costs, n)
	}
	s.entries = append(s.entries, e)
	s.costs = append(s.costs, *c)
}

// end closes the last table and drops the costs of the tables that it was made of, from one on.
func (s *Solver) end(t, of span) span {
	t.to = int32(len(s.entries))
	s.costs = slices.Delete(s.costs, int(of.costs), int(t.costs))
	t.costs = of.costs
	return t
}

// sort puts the last table in order, before it is closed.
func (s *Solver) sort(t span) {
	entries, costs := s.entries[t.from:], s.costs[t.costs:]
	if slices.IsSortedFunc(entries, func(a, b entry) int { return compareCounts(&a.Counts, &b.Counts) }) {
		return
	}
	if s.budget -= stepsPerEntry * len(entries); s.budget < 0 {
		return
	}
	s.scratch, s.slots = s.scratch[:0], s.slots[:0]
	for i := range entries {
		s.scratch = append(s.scratch, priced{entries[i], costs[i]})
		s.slots = append(s.slots, int32(i))
	}
	s.sortSlots(s.slots)
	for i, from := range s.slots {
		entries[i], costs[i] = s.scratch[from].entry, s.scratch[from].cost
	}
}

// sortSlots puts indices of what is in the making in the order of its counts.
func (s *Solver) sortSlots(slots []int32) {
	slices.SortFunc(slots, func(a, b int32) int {
		return compareCounts(&s.scratch[a].Counts, &s.scratch[b].Counts)
	})
}

// compareCounts puts the entries of a table in order.
func compareCounts(a, b *Counts) int {
	switch {
	case a.GPUs != b.GPUs:
		return cmp.Compare(a.GPUs, b.GPUs)
	case a.VFs != b.VFs:
		return cmp.Compare(a.VFs, b.VFs)
	case a.Extras != b.Extras:
		return cmp.Compare(a.Extras, b.Extras)
	default:
		return cmp.Compare(a.mix, b.mix)
	}
}

// withGPUs is the part of a table whose entries have a number of GPUs in a range.
func (t span) withGPUs(entries []entry, low, high int) (from, to int32) {
	first := func(gpus int) int32 {
		return t.from + int32(sort.Search(int(t.to-t.from), func(i int) bool {
			return entries[int(t.from)+i].GPUs >= gpus
		}))
	}
	return first(low), first(high + 1)
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
