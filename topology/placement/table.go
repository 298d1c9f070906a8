package placement

import (
	"slices"
	"sort"
)

// entry is the best way to take some GPUs, VFs and extras from a place, or from its first few children. Entries of one place
// are in ascending order of GPUs, VFs and extras.
type entry struct {
	counts
	before, last int32 // made of: an entry for the children before the last, and one of the last child
}

// priced is an entry with what it costs.
type priced struct {
	entry
	cost cost
}

// span is a table: a range of the solver's entries. Entries stay, to be followed back; what they cost is needed until the table above is
// made, so costs are a stack.
type span struct {
	from, to int32
	costs    int32 // where the costs begin
}

// cost is what an entry of a table costs.
func (s *solver) cost(t span, i int32) *cost { return &s.costs[t.costs+i-t.from] }

// begin makes an empty table.
func (s *solver) begin() span {
	return span{from: int32(len(s.entries)), costs: int32(len(s.costs))}
}

// stepsPerEntry is what it takes to keep an entry, in steps.
const stepsPerEntry = 8

// push adds an entry to the last table.
func (s *solver) push(e entry, c *cost) {
	s.budget -= stepsPerEntry
	s.entries = append(s.entries, e)
	s.costs = append(s.costs, *c)
}

// end closes the last table and drops the costs of the tables that it was made of, from one on.
func (s *solver) end(t, of span) span {
	t.to = int32(len(s.entries))
	s.costs = slices.Delete(s.costs, int(of.costs), int(t.costs))
	t.costs = of.costs
	return t
}

// sort puts the last table in order, before it is closed.
func (s *solver) sort(t span) {
	s.scratch = s.scratch[:0]
	for i := t.from; i < int32(len(s.entries)); i++ {
		s.scratch = append(s.scratch, priced{s.entries[i], *s.cost(t, i)})
	}
	slices.SortFunc(s.scratch, func(a, b priced) int { return compareCounts(a.counts, b.counts) })
	for i := range s.scratch {
		s.entries[int(t.from)+i], s.costs[int(t.costs)+i] = s.scratch[i].entry, s.scratch[i].cost
	}
}

// withGPUs is the part of a table whose entries have a number of GPUs in a range.
func (t span) withGPUs(entries []entry, low, high int) (from, to int32) {
	first := func(gpus int) int32 {
		return t.from + int32(sort.Search(int(t.to-t.from), func(i int) bool { return entries[int(t.from)+i].gpus >= gpus }))
	}
	return first(low), first(high + 1)
}

// fewestVFs is how many VFs must at least be taken beside so many GPUs for no more pairs to be beyond PIX than the limit allows.
func (s *solver) fewestVFs(gpus int) int {
	if s.pairs == 0 {
		return 0
	}
	_, ofVFs := s.slack()
	if d := s.perGPU*gpus - s.limit - ofVFs; d > 0 {
		return (d + s.perVF - 1) / s.perVF
	}
	return 0
}

// slack is how many extras the GPUs and the VFs of an entry can have at most.
func (s *solver) slack() (ofGPUs, ofVFs int) {
	switch {
	case !s.loose:
		return s.gpuExtra, s.vfExtra
	case s.gpuExtra > 0:
		return s.gpus, 0
	default:
		return 0, s.vfs
	}
}
