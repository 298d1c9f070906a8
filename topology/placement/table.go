// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"
	"sort"
)

// entry is the best way to take numbers of GPUs, VFs and extras from a place, or from its first children.
type entry struct {
	counts
	cost         cost
	before, last *entry // the combined entries: of the previous children, and of the last child
}

// table lists entries in ascending order of GPUs, VFs and extras.
type table []entry

// tables builds the tables of all places.
type tables struct {
	limits
	mixing mixing
	budget int // remaining steps; negative after the search was given up
}

// stepsPerEntry is the cost of keeping an entry, in steps.
const stepsPerEntry = 8

// sortTable sorts entries into a table.
func (t *tables) sortTable(made table) table {
	slices.SortFunc(made, func(a, b entry) int { return a.counts.compare(&b.counts) })
	t.budget -= stepsPerEntry * len(made)
	return made
}

// compare orders the entries of a table.
func (c *counts) compare(d *counts) int {
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
func (t table) withGPUs(low, high int) table {
	first := func(gpus int) int {
		return sort.Search(len(t), func(i int) bool { return t[i].GPUs >= gpus })
	}
	return t[first(low):first(high+1)]
}

// cardTable returns the table of a card: the numbers of GPUs that it can give.
func (t *tables) cardTable(n *place) (made table) {
	low, high := fewestFrom(t.GPUs, n.GPUs, t.root.GPUs), min(n.GPUs.Most, t.GPUs)
	if n.fixedGPUs != anyNumber {
		low, high = n.fixedGPUs, n.fixedGPUs
	}
	made = make(table, 0, max(high-low+1, 0))
	give := func(c counts) {
		made = append(made, entry{counts: c, cost: cost{
			termDegraded: int64(c.GPUs) * asNumber(n.Degraded),
			termCards:    breakingCost(n.GPUs.Free(), c.GPUs-n.GPUs.Held),
		}})
	}
	if t.mixing.gpus {
		for _, o := range n.offers {
			if low <= o.count && o.count <= high {
				give(counts{GPUs: o.count, mix: o.mix})
			}
		}
		return t.sortTable(made)
	}
	for g := low; g <= high; g++ {
		give(counts{GPUs: g})
	}
	return t.sortTable(made)
}

// groupTable adds the VFs of a group to the table of its cards.
func (t *tables) groupTable(n *place, cards table) (made table) {
	if len(n.Children) == 0 {
		cards = t.sortTable(table{{}})
	}
	made = make(table, 0, 2*len(cards))
	for i := range cards {
		gpus := &cards[i]
		if n.fixedGPUs != anyNumber && n.fixedGPUs != gpus.GPUs {
			continue
		}
		low, high := t.vfRange(n, gpus.GPUs)
		if t.mixing.vfs {
			for _, o := range n.offers {
				if low <= o.count && o.count <= high {
					made = t.appendGroup(made, n, gpus, o)
				}
			}
			continue
		}
		for v := low; v <= high; v++ {
			made = t.appendGroup(made, n, gpus, offer{count: v, cost: n.fillCosts[v-n.VFs.Held]})
		}
	}
	return t.sortTable(made)
}

// appendGroup appends the entries for the GPUs of an entry and the given VFs, with every possible number of
// extras.
func (t *tables) appendGroup(made table, n *place, cards *entry, given offer) table {
	gpus, vfs := cards.GPUs, given.count
	low, high := t.extrasRange(gpus, vfs)
	for x := low; x <= high; x++ {
		t.budget--
		ofGPUs, ofVFs := t.unitsOf(gpus, vfs, x)
		c := cards.cost
		n.addMeeting(&c, int64(min(ofGPUs, ofVFs)))
		if !t.isWithin(&n.content, c.beyondPIX(), ofGPUs, ofVFs) {
			continue
		}
		c[termBridges] += int64((ofGPUs + ofVFs) * n.Depth)
		g, v := gpus-n.GPUs.Held, vfs-n.VFs.Held
		c[termDegraded] += given.cost.degraded
		c[termShared] += given.cost.shared
		c[termLoad] += given.cost.load
		c[termCrowded] -= breakingCost(n.VFs.Free(), v)
		c[termStranded] += lostPairs(n.GPUs.Free(), n.VFs.Free(), g, v)
		c[termLater] += n.lostLater(g, v)
		c[termSwitches] += breakingCost(n.GPUs.Free(), g)
		made = append(made, entry{counts: counts{gpus, vfs, x, cards.mix + given.mix}, cost: c, before: cards})
	}
	return made
}

// lostPairs returns the decrease of possible pairs of GPUs and VFs when some are taken.
func lostPairs(gpus, vfs, takenGPUs, takenVFs int) int64 {
	return int64(min(gpus, vfs) - min(gpus-takenGPUs, vfs-takenVFs))
}

// lostLater returns the loss of a group for later containers when some of its GPUs and VFs are taken: free
// GPUs and free VFs with a partner, free or taken, and pairs of all devices that other containers will
// release.
func (n *place) lostLater(gpus, vfs int) int64 {
	return lostPairs(n.GPUs.Free(), n.VFs.allDevices(), gpus, 0) +
		lostPairs(n.GPUs.allDevices(), n.VFs.Free(), 0, vfs) +
		lostPairs(n.GPUs.allDevices()-n.GPUs.Held, n.VFs.allDevices()-n.VFs.Held, gpus, vfs)
}

// breakNode adds the cost of breaking a NUMA node to the entries of its table.
func breakNode(n *place, made table) {
	for i := range made {
		made[i].cost[termNodes] += breakingCost(n.GPUs.Free(), made[i].GPUs-n.GPUs.Held)
	}
}

// merge builds the table of the first children of a place from the table of the previous children and the
// table of the last of them.
type merge struct {
	*tables
	place        *place
	part         content // of the children merged until now
	floor        mix
	before, last table
	made         table // in the order in which counts were found

	// slots holds the index of an entry of made, by slot, or by counts if there are several resources.
	slots           []int32
	lowGPUs, lowVFs int
	width           int // slots for the numbers of VFs
	extra           int // slots for the numbers of extras
	mixed           map[counts]*int32
}

const noEntry = -1

// combineAll combines all entries that can be part of a choice.
func (m *merge) combineAll() table {
	steps := 1
	if m.mixing.isAny() {
		steps, m.mixed = stepsPerMixed, map[counts]*int32{}
	} else {
		m.openSlots()
	}
	m.made = make(table, 0, len(m.before)+len(m.last))
	lowGPUs, lowVFs := fewestFrom(m.GPUs, m.part.GPUs, m.root.GPUs), fewestFrom(m.VFs, m.part.VFs, m.root.VFs)
	if m.place.Kind == kindGroup {
		lowVFs = 0 // VFs are added after the cards have been merged
	}
	for j := range m.last {
		last := &m.last[j]
		before := m.before.withGPUs(lowGPUs-last.GPUs, m.GPUs-last.GPUs)
		m.budget -= steps * len(before)
		if m.budget < 0 {
			break
		}
		for i := range before {
			if v := before[i].VFs + last.VFs; lowVFs <= v && v <= m.VFs {
				m.combineEntries(&before[i], last)
			}
		}
	}
	return m.sortTable(m.made)
}

// openSlots creates empty slots for the combined table. The slot of a number of VFs is relative to the fewest
// VFs that the number of GPUs can have under the limit, so a tight limit needs few slots.
func (m *merge) openSlots() {
	a, b := m.before.bounds(), m.last.bounds()
	m.lowGPUs, m.lowVFs, m.extra = a.lowGPUs+b.lowGPUs, a.lowVFs+b.lowVFs, 1
	m.width = min(a.highVFs+b.highVFs, m.VFs) - m.lowVFs + 1
	if m.Pairs > 0 {
		ofGPUs, ofVFs := m.extraSlack()
		m.width = min(m.width, (2*m.limit+ofGPUs+ofVFs)/m.PerVF+2)
	}
	if !m.loose {
		m.extra += m.extras
	}
	size := max(min(a.highGPUs+b.highGPUs, m.GPUs)-m.lowGPUs+1, 0) * max(m.width, 0) * m.extra
	m.budget -= size / slotsPerStep
	if m.budget < 0 {
		return
	}
	m.slots = make([]int32, size)
	for i := range m.slots {
		m.slots[i] = noEntry
	}
}

// slotsPerStep is the number of slots that are cleared in the time of one step.
const slotsPerStep = 4

// bounds are the minimum and maximum counts of a table's entries.
type bounds struct{ lowGPUs, highGPUs, lowVFs, highVFs int }

func (t table) bounds() bounds {
	if len(t) == 0 {
		return bounds{}
	}
	b := bounds{lowGPUs: t[0].GPUs, highGPUs: t[len(t)-1].GPUs, lowVFs: t[0].VFs}
	for i := range t {
		b.lowVFs, b.highVFs = min(b.lowVFs, t[i].VFs), max(b.highVFs, t[i].VFs)
	}
	return b
}

// slotOf returns the location of an entry's index in the table under construction.
func (m *merge) slotOf(c counts) *int32 {
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

// combineEntries keeps the sum of two entries within the limit, unless an entry with the same counts is as
// cheap: the earlier entry has less from the last child (fewer GPUs, then fewer VFs, then fewer extras), so
// that the lowest addresses are taken first.
func (m *merge) combineEntries(a, b *entry) {
	t := counts{a.GPUs + b.GPUs, a.VFs + b.VFs, a.Extras + b.Extras, a.mix + b.mix}
	if m.mixed != nil && !(m.mixing.isWithin(t.mix) && m.mixing.hasFloor(t.mix, m.floor)) {
		return
	}
	pairs := 0
	if m.place.Kind != kindGroup { // cards without VFs, hence without pairs
		if !m.loose && (t.Extras > m.extras || t.Extras+m.mostExtras(m.GPUs-t.GPUs, m.VFs-t.VFs) < m.extras) {
			return
		}
		ofGPUs, ofVFs := m.unitsOf(t.GPUs, t.VFs, t.Extras)
		pairs = min(ofGPUs, ofVFs) - m.pairsOf(&a.counts) - m.pairsOf(&b.counts)
		if beyond := a.cost.beyondPIX() + b.cost.beyondPIX() + pairs; !m.isWithin(&m.part, beyond, ofGPUs, ofVFs) {
			return
		}
	}
	var here cost
	m.place.addMeeting(&here, int64(pairs))
	here[termLocality] = int64(a.GPUs*b.GPUs) * m.place.near
	slot := m.slotOf(t)
	if *slot == noEntry {
		*slot = int32(len(m.made))
		m.made = append(m.made, entry{counts: t})
	} else if !isLess(&a.cost, &b.cost, &here, &m.made[*slot].cost) {
		return
	}
	e := &m.made[*slot]
	e.before, e.last = a, b
	for k := range e.cost {
		e.cost[k] = a.cost[k] + b.cost[k] + here[k]
	}
}

// isLess reports whether a + b + here is less than than.
func isLess(a, b, here, than *cost) bool {
	for k := range than {
		if c := a[k] + b[k] + here[k]; c != than[k] {
			return c < than[k]
		}
	}
	return false
}
