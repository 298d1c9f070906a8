// SPDX-License-Identifier: Apache-2.0

package solver

// cardTable returns the table of a card: the numbers of GPUs that it can give.
func (s *Solver) cardTable(n *Place) span {
	low, high := fewest(s.GPUs, n.GPUs, s.root.GPUs), min(n.GPUs.Most, s.GPUs)
	if n.fixedGPUs != anyNumber {
		low, high = n.fixedGPUs, n.fixedGPUs
	}
	give := func(c Counts) {
		s.add(entry{Counts: c, cost: cost{termCards: breaking(n.GPUs.Free(), c.GPUs-n.GPUs.Held)}})
	}
	if s.mixing.gpus {
		for _, o := range n.offers {
			if low <= o.count && o.count <= high {
				give(Counts{GPUs: o.count, mix: o.mix})
			}
		}
		return s.made()
	}
	for g := low; g <= high; g++ {
		give(Counts{GPUs: g})
	}
	return s.made()
}

// groupTable adds the VFs of a group to the table of its cards.
func (s *Solver) groupTable(n *Place, cards span) span {
	if len(n.Children) == 0 {
		s.add(entry{})
		cards = s.made()
	}
	for i := cards.from; i < cards.to; i++ {
		if n.fixedGPUs != anyNumber && n.fixedGPUs != s.entries[i].GPUs {
			continue
		}
		low, high := s.vfRange(n, s.entries[i].GPUs)
		if s.mixing.vfs {
			for _, o := range n.offers {
				if low <= o.count && o.count <= high {
					s.groupEntries(n, i, o)
				}
			}
			continue
		}
		for v := low; v <= high; v++ {
			s.groupEntries(n, i, offer{count: v, cost: n.fillCosts[v-n.VFs.Held]})
		}
	}
	return s.made()
}

// vfRange returns the range of VFs that a group can give together with a number of GPUs.
func (s *Solver) vfRange(n *Place, gpus int) (low, high int) {
	if n.fixedVFs != anyNumber {
		return n.fixedVFs, n.fixedVFs
	}
	low, high = fewest(s.VFs, n.VFs, s.root.VFs), min(n.VFs.Most, s.VFs)
	if s.Pairs > 0 {
		low = max(low, s.fewestVFs(gpus))
		ofGPUs, _ := s.slack()
		high = min(high, (s.PerGPU*gpus+ofGPUs+s.limit)/s.PerVF)
	}
	return low, high
}

// groupEntries adds the entries for the GPUs of entry i and the given VFs, with every possible number of
// extras.
func (s *Solver) groupEntries(n *Place, i int32, given offer) {
	gpus, vfs := s.entries[i].GPUs, given.count
	low, high := s.extrasRange(gpus, vfs)
	for x := low; x <= high; x++ {
		s.budget--
		ofGPUs, ofVFs := s.units(gpus, vfs, x)
		c := s.entries[i].cost
		s.meet(n, &c, int64(min(ofGPUs, ofVFs)))
		if !s.within(&n.Content, c.beyondPIX(), ofGPUs, ofVFs) {
			continue
		}
		c[termBridges] += int64((ofGPUs + ofVFs) * n.Depth)
		g, v := gpus-n.GPUs.Held, vfs-n.VFs.Held
		c[termShared] += given.cost.shared
		c[termLoad] += given.cost.load
		c[termCrowded] -= breaking(n.VFs.Free(), v)
		c[termStranded] += lost(n.GPUs.Free(), n.VFs.Free(), g, v)
		c[termLater] += n.lostLater(g, v)
		c[termSwitches] += breaking(n.GPUs.Free(), g)
		s.add(entry{Counts: Counts{gpus, vfs, x, s.entries[i].mix + given.mix}, cost: c, before: i})
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

// extrasRange returns the range of extras that a number of GPUs and VFs can have. The devices elsewhere must
// be able to take the remaining extras, one each.
func (s *Solver) extrasRange(gpus, vfs int) (low, high int) {
	high = s.mostExtras(gpus, vfs)
	if s.loose {
		follow := vfs - s.PerGPU*gpus
		if s.VFExtra > 0 {
			follow = gpus - s.PerVF*vfs
		}
		follow = min(max(follow, 0), high)
		return follow, follow
	}
	return s.extras - s.mostExtras(s.GPUs-gpus, s.VFs-vfs), high
}

// breakNode adds the cost of breaking a NUMA node.
func (s *Solver) breakNode(n *Place, t span) {
	for i := t.from; i < t.to; i++ {
		e := &s.entries[i]
		e.cost[termNodes] += breaking(n.GPUs.Free(), e.GPUs-n.GPUs.Held)
	}
}
