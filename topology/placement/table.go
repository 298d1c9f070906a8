package placement

import "sort"

// entry is the best way to take some GPUs, VFs and extras from a place, or from its first few children. Entries of one place
// are in ascending order of GPUs, VFs and extras.
type entry struct {
	gpus, vfs, extras int
	before, last      int32 // made of: an entry for the children before the last, and one of the last child
	cost              cost
}

// span is a table: a range of the solver's entries.
type span struct{ from, to int32 }

// withGPUs is the part of a table whose entries have a number of GPUs in a range.
func (t span) withGPUs(entries []entry, low, high int) (from, to int32) {
	first := func(gpus int) int32 {
		return t.from + int32(sort.Search(int(t.to-t.from), func(i int) bool { return entries[int(t.from)+i].gpus >= gpus }))
	}
	return first(low), first(high + 1)
}

// grid finds the entry for given counts while a table is being made.
type grid struct {
	solver  *solver
	lowGPUs int
	lowVFs  int
	width   int // slots for the numbers of VFs
	extras  int // slots for the numbers of extras
	slots   []int32
}

const noEntry = -1

// bounds is the least and the most that the entries of a table have.
type bounds struct{ lowGPUs, highGPUs, lowVFs, highVFs int }

func (s *solver) bounds(t span) bounds {
	if t.from == t.to {
		return bounds{}
	}
	entries := s.entries[t.from:t.to]
	b := bounds{lowGPUs: entries[0].gpus, highGPUs: entries[len(entries)-1].gpus, lowVFs: entries[0].vfs}
	for i := range entries {
		b.lowVFs = min(b.lowVFs, entries[i].vfs)
		b.highVFs = max(b.highVFs, entries[i].vfs)
	}
	return b
}

// newGrid makes an empty grid for what two tables make together. The numbers of VFs are counted from the fewest that so many GPUs can
// have under the limit, so that a tight limit makes a narrow grid.
func (s *solver) newGrid(a, b bounds) grid {
	g := grid{solver: s, lowGPUs: a.lowGPUs + b.lowGPUs, lowVFs: a.lowVFs + b.lowVFs, extras: 1}
	g.width = min(a.highVFs+b.highVFs, s.vfs) - g.lowVFs + 1
	if s.pairs > 0 {
		ofGPUs, ofVFs := s.slack()
		g.width = min(g.width, (2*s.limit+ofGPUs+ofVFs)/s.perVF+2)
	}
	if !s.loose {
		g.extras += s.extras
	}
	size := max(min(a.highGPUs+b.highGPUs, s.gpus)-g.lowGPUs+1, 0) * max(g.width, 0) * g.extras
	if s.budget -= size / slotsPerStep; s.budget < 0 {
		return g
	}
	if cap(s.slots) < size {
		s.slots = make([]int32, size)
	}
	g.slots = s.slots[:size]
	for i := range g.slots {
		g.slots[i] = noEntry
	}
	return g
}

// slotsPerStep is how many slots are cleared in the time of a step.
const slotsPerStep = 16

func (g *grid) slot(e *entry) *int32 {
	i := (e.gpus-g.lowGPUs)*g.width + e.vfs
	if g.width > 1 {
		i -= max(g.lowVFs, g.solver.fewestVFs(e.gpus))
	} else {
		i -= g.lowVFs
	}
	if g.extras > 1 {
		i = i*g.extras + e.extras
	}
	return &g.slots[i]
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
