package solver

import (
	"cmp"
	"slices"
	"sort"
)

// entry is the best way to take some GPUs, VFs and extras from a place, or from its first few children.
type entry struct {
	Counts
	cost         cost
	before, last int32 // made of: an entry for the children before the last, and one of the last child
}

// span is a table: a range of the solver's entries, in ascending order of GPUs, VFs and extras.
type span struct{ from, to int32 }

// add adds an entry to the table being made.
func (s *Solver) add(e entry) { s.making = append(s.making, e) }

// stepsPerEntry is what it takes to keep an entry, in steps.
const stepsPerEntry = 8

// made makes a table of all that was added, in order.
func (s *Solver) made() span {
	slices.SortFunc(s.making, func(a, b entry) int { return a.Counts.compare(&b.Counts) })
	t := s.begin()
	s.entries = append(s.entries, s.making...)
	return s.end(t)
}

func (s *Solver) begin() span { return span{from: int32(len(s.entries))} }

func (s *Solver) end(t span) span {
	t.to = int32(len(s.entries))
	s.budget -= stepsPerEntry * len(s.making)
	s.making = s.making[:0]
	return t
}

// compare puts the entries of a table in order.
func (c *Counts) compare(d *Counts) int {
	switch {
	case c.GPUs != d.GPUs:
		return cmp.Compare(c.GPUs, d.GPUs)
	case c.VFs != d.VFs:
		return cmp.Compare(c.VFs, d.VFs)
	case c.Extras != d.Extras:
		return cmp.Compare(c.Extras, d.Extras)
	default:
		return cmp.Compare(c.mix, d.mix)
	}
}

// withGPUs is the part of a table whose entries have a number of GPUs in a range.
func (t span) withGPUs(entries []entry, low, high int) span {
	first := func(gpus int) int32 {
		return t.from + int32(sort.Search(int(t.to-t.from), func(i int) bool {
			return entries[int(t.from)+i].GPUs >= gpus
		}))
	}
	return span{first(low), first(high + 1)}
}
