// SPDX-License-Identifier: Apache-2.0

package solver

// cardTable returns the table of a card: the numbers of GPUs that it can give.
func (t *tables) cardTable(n *Place) span {
	low, high := fewest(t.GPUs, n.GPUs, t.root.GPUs), min(n.GPUs.Most, t.GPUs)
	if n.fixedGPUs != anyNumber {
		low, high = n.fixedGPUs, n.fixedGPUs
	}
	give := func(c Counts) {
		t.add(entry{Counts: c, cost: cost{
			termDegraded: int64(c.GPUs) * number(n.Degraded),
			termCards:    breaking(n.GPUs.Free(), c.GPUs-n.GPUs.Held),
		}})
	}
	if t.mixing.gpus {
		for _, o := range n.offers {
			if low <= o.count && o.count <= high {
				give(Counts{GPUs: o.count, mix: o.mix})
			}
		}
		return t.made()
	}
	for g := low; g <= high; g++ {
		give(Counts{GPUs: g})
	}
	return t.made()
}

// groupTable adds the VFs of a group to the table of its cards.
func (t *tables) groupTable(n *Place, cards span) span {
	if len(n.Children) == 0 {
		t.add(entry{})
		cards = t.made()
	}
	for i := cards.from; i < cards.to; i++ {
		if n.fixedGPUs != anyNumber && n.fixedGPUs != t.entries[i].GPUs {
			continue
		}
		low, high := t.vfRange(n, t.entries[i].GPUs)
		if t.mixing.vfs {
			for _, o := range n.offers {
				if low <= o.count && o.count <= high {
					t.groupEntries(n, i, o)
				}
			}
			continue
		}
		for v := low; v <= high; v++ {
			t.groupEntries(n, i, offer{count: v, cost: n.fillCosts[v-n.VFs.Held]})
		}
	}
	return t.made()
}

// groupEntries adds the entries for the GPUs of entry i and the given VFs, with every possible number of
// extras.
func (t *tables) groupEntries(n *Place, i int32, given offer) {
	gpus, vfs := t.entries[i].GPUs, given.count
	low, high := t.extrasRange(gpus, vfs)
	for x := low; x <= high; x++ {
		t.budget--
		ofGPUs, ofVFs := t.units(gpus, vfs, x)
		c := t.entries[i].cost
		n.meet(&c, int64(min(ofGPUs, ofVFs)))
		if !t.within(&n.Content, c.beyondPIX(), ofGPUs, ofVFs) {
			continue
		}
		c[termBridges] += int64((ofGPUs + ofVFs) * n.Depth)
		g, v := gpus-n.GPUs.Held, vfs-n.VFs.Held
		c[termDegraded] += given.cost.degraded
		c[termShared] += given.cost.shared
		c[termLoad] += given.cost.load
		c[termCrowded] -= breaking(n.VFs.Free(), v)
		c[termStranded] += lost(n.GPUs.Free(), n.VFs.Free(), g, v)
		c[termLater] += n.lostLater(g, v)
		c[termSwitches] += breaking(n.GPUs.Free(), g)
		t.add(entry{Counts: Counts{gpus, vfs, x, t.entries[i].mix + given.mix}, cost: c, before: i})
	}
}

// lost returns the decrease of possible pairs of GPUs and VFs when some are taken.
func lost(gpus, vfs, takenGPUs, takenVFs int) int64 {
	return int64(min(gpus, vfs) - min(gpus-takenGPUs, vfs-takenVFs))
}

// lostLater returns the loss of a group for later containers when some of its GPUs and VFs are taken: free
// GPUs and free VFs with a partner, free or taken, and pairs of all devices that other containers will
// release.
func (n *Place) lostLater(gpus, vfs int) int64 {
	return lost(n.GPUs.Free(), n.VFs.all(), gpus, 0) + lost(n.GPUs.all(), n.VFs.Free(), 0, vfs) +
		lost(n.GPUs.all()-n.GPUs.Held, n.VFs.all()-n.VFs.Held, gpus, vfs)
}

// breakNode adds the cost of breaking a NUMA node to the entries of its table.
func breakNode(n *Place, entries []entry) {
	for i := range entries {
		entries[i].cost[termNodes] += breaking(n.GPUs.Free(), entries[i].GPUs-n.GPUs.Held)
	}
}
