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

// span is a table: a range of all entries, in ascending order of GPUs, VFs and extras.
type span struct{ from, to int32 }

// tables are the tables of all places, with what is needed to build them.
type tables struct {
	limits
	mixing  mixing
	budget  int     // remaining steps; negative after the search was given up
	entries []entry // all tables, kept for tracing back
	making  []entry // the table under construction
	room    []int32 // scratch space for its slots
}

// add adds an entry to the table under construction.
func (t *tables) add(e entry) { t.making = append(t.making, e) }

// stepsPerEntry is the cost of keeping an entry, in steps.
const stepsPerEntry = 8

// made sorts the added entries into a table.
func (t *tables) made() span {
	slices.SortFunc(t.making, func(a, b entry) int { return a.Counts.compare(&b.Counts) })
	made := t.begin()
	t.entries = append(t.entries, t.making...)
	return t.end(made)
}

func (t *tables) begin() span { return span{from: int32(len(t.entries))} }

func (t *tables) end(made span) span {
	made.to = int32(len(t.entries))
	t.budget -= stepsPerEntry * len(t.making)
	t.making = t.making[:0]
	return made
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
