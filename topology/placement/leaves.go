package placement

// cardTable lists how many GPUs a card can give.
func (s *solver) cardTable(n *place) span {
	low, high := fewest(s.gpus, n.gpus, s.root.gpus), min(n.gpus.most, s.gpus)
	if n.fixedGPUs != anyNumber {
		low, high = n.fixedGPUs, n.fixedGPUs
	}
	t := s.begin()
	if s.mixing.gpus {
		for _, o := range n.offers {
			if low <= o.count && o.count <= high {
				s.pushCard(n, counts{gpus: o.count, mix: o.mix})
			}
		}
		return s.end(t, t)
	}
	for g := low; g <= high; g++ {
		s.pushCard(n, counts{gpus: g})
	}
	return s.end(t, t)
}

func (s *solver) pushCard(n *place, c counts) {
	s.push(entry{counts: c}, &cost{termCards: breaking(n.gpus.free(), c.gpus-n.gpus.held)})
}

// groupTable adds the VFs of a group to the table of its cards.
func (s *solver) groupTable(n *place, cards span) span {
	if len(n.children) == 0 {
		cards = s.begin()
		s.push(entry{}, &cost{})
		cards = s.end(cards, cards)
	}
	t := s.begin()
	for i := cards.from; i < cards.to; i++ {
		if n.fixedGPUs != anyNumber && n.fixedGPUs != s.entries[i].gpus {
			continue
		}
		low, high := s.vfRange(n, s.entries[i].gpus)
		if s.mixing.vfs {
			for _, o := range n.offers {
				if low <= o.count && o.count <= high {
					s.groupEntries(n, cards, i, o)
				}
			}
			continue
		}
		for v := low; v <= high; v++ {
			s.groupEntries(n, cards, i, offer{count: v, cost: n.fillCosts[v-n.vfs.held]})
		}
	}
	if s.mixing.any() {
		s.sort(t)
	}
	return s.end(t, cards)
}

// vfRange is how many VFs a group can give beside so many GPUs.
func (s *solver) vfRange(n *place, gpus int) (low, high int) {
	if n.fixedVFs != anyNumber {
		return n.fixedVFs, n.fixedVFs
	}
	low, high = fewest(s.vfs, n.vfs, s.root.vfs), min(n.vfs.most, s.vfs)
	if s.pairs > 0 {
		low = max(low, s.fewestVFs(gpus))
		ofGPUs, _ := s.slack()
		high = min(high, (s.perGPU*gpus+ofGPUs+s.limit)/s.perVF)
	}
	return low, high
}

// groupEntries adds the entries for some GPUs, those of entry i, and some VFs, with every number of extras.
func (s *solver) groupEntries(n *place, cards span, i int32, given offer) {
	gpus, vfs := s.entries[i].gpus, given.count
	low, high := s.extrasRange(gpus, vfs)
	for x := low; x <= high; x++ {
		s.budget--
		ofGPUs, ofVFs := s.units(gpus, vfs, x)
		c := *s.cost(cards, i)
		s.meet(n, &c, int64(min(ofGPUs, ofVFs)))
		if !s.within(&n.content, c.beyondPIX(), ofGPUs, ofVFs) {
			continue
		}
		c[termBridges] += int64((ofGPUs + ofVFs) * n.depth)
		g, v := gpus-n.gpus.held, vfs-n.vfs.held
		c[termShared] += given.cost.shared
		c[termLoad] += given.cost.load
		c[termCrowded] -= breaking(n.vfs.free(), v)
		c[termStranded] += int64(min(n.gpus.free(), n.vfs.free()) - min(n.gpus.free()-g, n.vfs.free()-v))
		c[termSwitches] += breaking(n.gpus.free(), g)
		s.push(entry{counts: counts{gpus, vfs, x, s.entries[i].mix + given.mix}, before: i}, &c)
	}
}

// extrasRange is how many extras some GPUs and VFs can have. Those elsewhere must be able to take the rest, one each.
func (s *solver) extrasRange(gpus, vfs int) (low, high int) {
	high = s.mostExtras(gpus, vfs)
	if s.loose {
		follow := vfs - s.perGPU*gpus
		if s.vfExtra > 0 {
			follow = gpus - s.perVF*vfs
		}
		follow = min(max(follow, 0), high)
		return follow, follow
	}
	return s.extras - s.mostExtras(s.gpus-gpus, s.vfs-vfs), high
}

// breakNode adds what it costs to break a NUMA node.
func (s *solver) breakNode(n *place, t span) {
	for i := t.from; i < t.to; i++ {
		e, c := &s.entries[i], s.cost(t, i)
		c[termNodes] += breaking(n.gpus.free(), e.gpus-n.gpus.held)
	}
}
