package solver

import "slices"

// row is the part of a table that differs in the number of VFs alone.
type row struct {
	gpus, extras int
	entries      []int32 // ascending by VFs
	// without the pairs made below: what a merge makes of two rows depends on their sum alone
	costs  []cost
	convex bool
}

// rowRoom is where the rows of two tables are while they are combined.
type rowRoom struct {
	entries []int32
	costs   []cost
}

// clear makes room for so many entries.
func (r *rowRoom) clear(entries int) {
	r.entries, r.costs = slices.Grow(r.entries[:0], entries), slices.Grow(r.costs[:0], entries)
}

// row makes an empty row for so many entries.
func (r *rowRoom) row(gpus, extras, entries int) row {
	from, to := len(r.entries), len(r.entries)+entries
	r.entries, r.costs = r.entries[:to], r.costs[:to]
	return row{gpus: gpus, extras: extras, entries: r.entries[from:from:to], costs: r.costs[from:from:to]}
}

// rows splits a table into rows for a merge at a place. Many are convex: each further VF costs no less than
// the one before.
func (s *Solver) rows(n *Place, t span) []row {
	b := s.bounds(t)
	width := b.highExtras + 1
	at := make([]int, (b.highGPUs-b.lowGPUs+1)*width) // by GPUs and extras: the entries of a row, then the row
	of := func(e *entry) *int { return &at[(e.GPUs-b.lowGPUs)*width+e.Extras] }
	for i := t.from; i < t.to; i++ {
		*of(&s.entries[i])++
	}
	rows := make([]row, 0, len(at))
	for i, entries := range at {
		if entries > 0 {
			at[i] = len(rows)
			rows = append(rows, s.rowRoom.row(b.lowGPUs+i/width, i%width, entries))
		}
	}
	for i := t.from; i < t.to; i++ {
		e, c := &s.entries[i], *s.cost(t, i)
		if n.Kind != Group {
			s.meet(n, &c, -int64(s.made(e)))
		}
		r := &rows[*of(e)]
		r.entries, r.costs = append(r.entries, i), append(r.costs, c)
	}
	s.budget -= stepsPerEntry * int(t.to-t.from)
	for k := range rows {
		rows[k].convex = s.convex(&rows[k])
	}
	return rows
}

// convex reports whether each further VF of a row costs no less than the one before it, and no number of VFs
// is missing.
func (s *Solver) convex(r *row) bool {
	for k := 1; k < len(r.entries); k++ {
		if s.vfsAt(r, k) != s.vfsAt(r, k-1)+1 {
			return false
		}
		if k > 1 && compareSums(&r.costs[k], &r.costs[k-2], &r.costs[k-1], &r.costs[k-1]) < 0 {
			return false
		}
	}
	return true
}

func (s *Solver) vfsAt(r *row, k int) int { return s.entries[r.entries[k]].VFs }

// mergeRows combines two tables row by row.
func (g *grid) mergeRows(before, last span, lowGPUs, lowVFs int) {
	s := g.solver
	s.rowRoom.clear(int(before.to - before.from + last.to - last.from))
	these, those := s.rows(g.place, before), s.rows(g.place, last)
	for k := range those {
		for i := range these {
			a, b := &these[i], &those[k]
			if gpus := a.gpus + b.gpus; gpus < lowGPUs || gpus > s.GPUs || s.budget < 0 {
				continue
			}
			m := rowMerge{grid: g, any: a, convex: b, lowVFs: lowVFs}
			if !b.convex {
				m.any, m.convex, m.swapped = b, a, true
			}
			few := min(4*(len(a.entries)+len(b.entries)), s.manyPairs) // no more than what dividing takes
			switch {
			case a.convex && b.convex:
				m.walk()
			case m.convex.convex && len(a.entries)*len(b.entries) > few:
				m.run()
			default:
				m.all()
			}
		}
	}
}

// rowMerge combines two rows. Where one is convex, the best way to get some VFs from both takes no fewer from
// the other row than the best way to get fewer VFs does. So halves of the numbers of VFs need look at
// disjoint parts of the other row only.
type rowMerge struct {
	*grid
	any, convex *row
	swapped     bool // the convex one is that of the children before, not that of the last child
	lowVFs      int
}

// all combines all entries.
func (m *rowMerge) all() {
	s := m.solver
	s.budget -= len(m.any.entries) * len(m.convex.entries)
	for i := range m.any.entries {
		for k := range m.convex.entries {
			if v := s.vfsAt(m.any, i) + s.vfsAt(m.convex, k); m.lowVFs <= v && v <= s.VFs {
				m.take(i, k)
			}
		}
	}
}

// walk combines two convex rows: the next VF comes from where it costs less, and from the children before
// where both cost the same.
func (m *rowMerge) walk() {
	s := m.solver
	before, last := m.any, m.convex
	i, k := 0, 0
	for vfs := s.vfsAt(before, 0) + s.vfsAt(last, 0); vfs <= s.VFs; vfs++ {
		if s.budget--; vfs >= m.lowVFs {
			m.take(i, k)
		}
		moreBefore, moreLast := i+1 < len(before.entries), k+1 < len(last.entries)
		switch {
		case moreBefore && moreLast &&
			compareSums(&before.costs[i+1], &last.costs[k], &before.costs[i], &last.costs[k+1]) <= 0:
			i++
		case moreLast:
			k++
		case moreBefore:
			i++
		default:
			return
		}
	}
}

// run combines rows of which one is convex.
func (m *rowMerge) run() {
	s := m.solver
	lastAny, lastConvex := len(m.any.entries)-1, len(m.convex.entries)-1
	low := max(m.lowVFs, s.vfsAt(m.any, 0)+s.vfsAt(m.convex, 0))
	high := min(s.VFs, s.vfsAt(m.any, lastAny)+s.vfsAt(m.convex, lastConvex))
	m.divide(low, high, 0, lastAny)
}

// divide finds the best way for each number of VFs from low to high, with one of the entries from first to
// last.
func (m *rowMerge) divide(low, high, first, last int) {
	if low > high || m.solver.budget < 0 {
		return
	}
	vfs := (low + high) / 2
	best := m.best(vfs, first, last)
	if best < 0 {
		m.divide(low, vfs-1, first, last)
		m.divide(vfs+1, high, first, last)
		return
	}
	m.take(best, m.rest(vfs, best))
	m.divide(low, vfs-1, first, best)
	m.divide(vfs+1, high, best, last)
}

// rest is the entry of the convex row for the VFs that an entry of the other row leaves.
func (m *rowMerge) rest(vfs, i int) int {
	return vfs - m.solver.vfsAt(m.any, i) - m.solver.vfsAt(m.convex, 0)
}

// best finds the entry from first to last that is best for a number of VFs, -1 for none. Of those that cost
// the same it is the one that takes least from the last child.
func (m *rowMerge) best(vfs, first, last int) int {
	best := -1
	for i := first; i <= last; i++ {
		k := m.rest(vfs, i)
		if k < 0 {
			break
		}
		m.solver.budget--
		if k >= len(m.convex.entries) {
			continue
		}
		if best >= 0 {
			b := m.rest(vfs, best)
			c := compareSums(&m.any.costs[i], &m.convex.costs[k], &m.any.costs[best], &m.convex.costs[b])
			if c > 0 || c == 0 && m.swapped {
				continue
			}
		}
		best = i
	}
	return best
}

// take combines an entry of the one row with one of the other.
func (m *rowMerge) take(i, k int) {
	before, last := m.any.entries[i], m.convex.entries[k]
	if m.swapped {
		before, last = last, before
	}
	m.combine(before, last)
}

// compareSums compares the sum of two costs with that of two others.
func compareSums(a, b, c, d *cost) int {
	for k := range a {
		if x, y := a[k]+b[k], c[k]+d[k]; x != y {
			if x < y {
				return -1
			}
			return 1
		}
	}
	return 0
}
