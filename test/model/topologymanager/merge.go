// SPDX-License-Identifier: Apache-2.0

package topologymanager

// merge returns the best merger of one hint of each resource (HintMerger.Merge).
func (m Manager) merge(lists [][]hint, machine set) hint {
	best, found := hint{nodes: machine}, false
	most := widest(lists)
	var choose func(lists [][]hint, chosen []hint)
	choose = func(lists [][]hint, chosen []hint) {
		if len(lists) == 0 {
			if h := intersection(chosen, machine); h.nodes != 0 && (!found || m.better(h, best, most)) {
				best, found = h, true
			}
			return
		}
		for _, h := range lists[0] {
			choose(lists[1:], append(chosen, h))
		}
	}
	choose(lists, nil)
	return best
}

// intersection merges one hint of each resource (mergePermutation).
func intersection(chosen []hint, machine set) hint {
	merged, first := hint{nodes: machine, preferred: true}, set(0)
	for _, h := range chosen {
		if h.nodes != 0 {
			if first == 0 {
				first = h.nodes
			}
			merged.nodes &= h.nodes
			merged.preferred = merged.preferred && h.nodes == first
		}
		merged.preferred = merged.preferred && h.preferred
	}
	return merged
}

// widest returns the most nodes that the narrowest hint of a resource has (maxOfMinAffinityCounts).
func widest(lists [][]hint) (most int) {
	for _, list := range lists {
		fewest := 0
		for _, h := range list {
			if h.nodes != 0 && (fewest == 0 || h.nodes.count() < fewest) {
				fewest = h.nodes.count()
			}
		}
		most = max(most, fewest)
	}
	return most
}

// better reports whether a hint replaces the best hint so far (HintMerger.compare). A hint that is not
// preferred should have most nodes, or else fewer, but nearly as many.
func (m Manager) better(h, best hint, most int) bool {
	have, get := best.nodes.count(), h.nodes.count()
	switch {
	case h.preferred != best.preferred:
		return h.preferred
	case h.preferred, have > most, have == get:
		return m.nearer(h.nodes, best.nodes)
	case have == most, get > most:
		return false
	default:
		return get > have
	}
}

// nearer reports whether a set of nodes is preferred to another one (CompareNUMAAffinityMasks).
func (m Manager) nearer(a, b set) bool {
	if m.Distances != nil && m.Policy != SingleNUMANode && a.count() == b.count() {
		if x, y := m.average(a), m.average(b); x != y {
			return x < y
		}
	}
	return a.count() < b.count() || a.count() == b.count() && a < b
}

// average returns the average distance between nodes, and of each from itself (CalculateAverageFor).
func (m Manager) average(nodes set) float64 {
	sum, pairs := 0, 0
	for _, a := range nodes.numbers() {
		for _, b := range nodes.numbers() {
			sum += m.Distances[a][b]
			pairs++
		}
	}
	return float64(sum) / float64(pairs)
}
