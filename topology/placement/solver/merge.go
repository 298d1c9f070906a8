// SPDX-License-Identifier: Apache-2.0

package solver

import "slices"

// merge builds the table of the first children of a place from the table of the previous children and the
// table of the last of them.
type merge struct {
	*tables
	place        *Place
	part         Content // of the children merged until now
	floor        mix
	before, last span

	// slots holds the index of an entry in the table under construction, by slot, or by counts if there are
	// several resources.
	slots           []int32
	lowGPUs, lowVFs int
	width           int // slots for the numbers of VFs
	extra           int // slots for the numbers of extras
	mixed           map[Counts]*int32
}

const noEntry = -1

// table combines all entries that can be part of a choice.
func (m *merge) table() span {
	steps := 1
	if m.mixing.any() {
		steps, m.mixed = stepsPerMixed, map[Counts]*int32{}
	} else {
		m.open()
	}
	lowGPUs, lowVFs := fewest(m.GPUs, m.part.GPUs, m.root.GPUs), fewest(m.VFs, m.part.VFs, m.root.VFs)
	if m.place.Kind == Group {
		lowVFs = 0 // VFs are added after the cards have been merged
	}
	for j := m.last.from; j < m.last.to; j++ {
		gpus, vfs := m.entries[j].GPUs, m.entries[j].VFs
		t := m.before.withGPUs(m.entries, lowGPUs-gpus, m.GPUs-gpus)
		if m.budget -= steps * int(t.to-t.from); m.budget < 0 {
			break
		}
		for i := t.from; i < t.to; i++ {
			if v := m.entries[i].VFs + vfs; lowVFs <= v && v <= m.VFs {
				m.combine(i, j)
			}
		}
	}
	if m.mixed != nil {
		return m.made()
	}
	t := m.begin()
	for _, i := range m.slots { // in ascending order
		if i != noEntry {
			m.entries = append(m.entries, m.making[i])
		}
	}
	return m.end(t)
}

// open creates empty slots for the combined table. The slot of a number of VFs is relative to the fewest VFs
// that the number of GPUs can have under the limit, so a tight limit needs few slots.
func (m *merge) open() {
	a, b := m.bounds(m.before), m.bounds(m.last)
	m.lowGPUs, m.lowVFs, m.extra = a.lowGPUs+b.lowGPUs, a.lowVFs+b.lowVFs, 1
	m.width = min(a.highVFs+b.highVFs, m.VFs) - m.lowVFs + 1
	if m.Pairs > 0 {
		ofGPUs, ofVFs := m.slack()
		m.width = min(m.width, (2*m.limit+ofGPUs+ofVFs)/m.PerVF+2)
	}
	if !m.loose {
		m.extra += m.extras
	}
	size := max(min(a.highGPUs+b.highGPUs, m.GPUs)-m.lowGPUs+1, 0) * max(m.width, 0) * m.extra
	if m.budget -= size / slotsPerStep; m.budget < 0 {
		return
	}
	m.slots = slices.Grow(m.room[:0], size)[:size]
	m.room = m.slots
	for i := range m.slots {
		m.slots[i] = noEntry
	}
}

// slotsPerStep is the number of slots that are cleared in the time of one step.
const slotsPerStep = 4

// bounds are the minimum and maximum counts of a table's entries.
type bounds struct{ lowGPUs, highGPUs, lowVFs, highVFs int }

func (t *tables) bounds(of span) bounds {
	if of.from == of.to {
		return bounds{}
	}
	entries := t.entries[of.from:of.to]
	b := bounds{lowGPUs: entries[0].GPUs, highGPUs: entries[len(entries)-1].GPUs, lowVFs: entries[0].VFs}
	for i := range entries {
		b.lowVFs, b.highVFs = min(b.lowVFs, entries[i].VFs), max(b.highVFs, entries[i].VFs)
	}
	return b
}

// slot returns the location of an entry's index in the table under construction.
func (m *merge) slot(c Counts) *int32 {
	if m.mixed != nil {
		slot := m.mixed[c]
		if slot == nil {
			slot = new(int32)
			*slot = noEntry
			m.mixed[c] = slot
		}
		return slot
	}
	low := m.lowVFs
	if m.width > 1 {
		low = max(low, m.fewestVFs(c.GPUs))
	}
	i := (c.GPUs-m.lowGPUs)*m.width + c.VFs - low
	if m.extra > 1 {
		i = i*m.extra + c.Extras
	}
	return &m.slots[i]
}

// combine keeps the sum of two entries within the limit, unless an entry with the same counts is cheaper. Of
// equal costs, combine keeps the entry with less from the last child (fewer GPUs, then fewer VFs, then fewer
// extras), so that the lowest addresses are taken first.
func (m *merge) combine(i, j int32) {
	a, b := &m.entries[i], &m.entries[j]
	t := Counts{a.GPUs + b.GPUs, a.VFs + b.VFs, a.Extras + b.Extras, a.mix + b.mix}
	if m.mixed != nil && !(m.mixing.fits(t.mix) && m.mixing.reaches(t.mix, m.floor)) {
		return
	}
	pairs := 0
	if m.place.Kind != Group { // cards without VFs, hence without pairs
		if !m.loose && (t.Extras > m.extras || t.Extras+m.mostExtras(m.GPUs-t.GPUs, m.VFs-t.VFs) < m.extras) {
			return
		}
		ofGPUs, ofVFs := m.units(t.GPUs, t.VFs, t.Extras)
		pairs = min(ofGPUs, ofVFs) - m.pairsOf(&a.Counts) - m.pairsOf(&b.Counts)
		if beyond := a.cost.beyondPIX() + b.cost.beyondPIX() + pairs; !m.within(&m.part, beyond, ofGPUs, ofVFs) {
			return
		}
	}
	var here cost
	m.place.meet(&here, int64(pairs))
	here[termLocality] = int64(a.GPUs*b.GPUs) * m.place.near
	slot := m.slot(t)
	if *slot == noEntry {
		*slot = int32(len(m.making))
		m.add(entry{Counts: t})
	} else if than := &m.making[*slot]; !less(&a.cost, &b.cost, &here, &than.cost, j < than.last) {
		return
	}
	e := &m.making[*slot]
	e.before, e.last = i, j
	for k := range e.cost {
		e.cost[k] = a.cost[k] + b.cost[k] + here[k]
	}
}

// less reports whether a + b + here is less than than; it returns otherwise if they are equal.
func less(a, b, here, than *cost, otherwise bool) bool {
	for k := range than {
		if c := a[k] + b[k] + here[k]; c != than[k] {
			return c < than[k]
		}
	}
	return otherwise
}
