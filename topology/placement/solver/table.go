// SPDX-License-Identifier: Apache-2.0

package solver

import (
	"cmp"
	"slices"
	"sort"
)

// entry is the best way to take numbers of GPUs, VFs and extras from a place, or from its first children.
type entry struct {
	Counts
	cost         cost
	before, last int32 // the combined entries: of the previous children, and of the last child
}

// span is a table: a range of the solver's entries, in ascending order of GPUs, VFs and extras.
type span struct{ from, to int32 }

// add adds an entry to the table under construction.
func (s *Solver) add(e entry) { s.making = append(s.making, e) }

// stepsPerEntry is the cost of keeping an entry, in steps.
const stepsPerEntry = 8

// made sorts the added entries into a table.
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

// compare orders the entries of a table.
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

// withGPUs returns the part of a table whose entries have a number of GPUs between low and high.
func (t span) withGPUs(entries []entry, low, high int) span {
	first := func(gpus int) int32 {
		return t.from + int32(sort.Search(int(t.to-t.from), func(i int) bool {
			return entries[int(t.from)+i].GPUs >= gpus
		}))
	}
	return span{first(low), first(high + 1)}
}
