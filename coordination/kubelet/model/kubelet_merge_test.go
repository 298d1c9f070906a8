// SPDX-License-Identifier: Apache-2.0

package model

// providerHints is what filterProvidersHints makes of the hints of a CPU or memory manager.
func providerHints(l Hints) []Hint {
	switch {
	case l == nil:
		return []Hint{{0, true}}
	case len(l) == 0:
		return []Hint{{0, false}}
	default:
		return l
	}
}

// filterSingle is filterSingleNumaHints.
func filterSingle(list []Hint) []Hint {
	var filtered []Hint
	for _, h := range list {
		if h.Preferred && h.Nodes.Count() <= 1 {
			filtered = append(filtered, h)
		}
	}
	return filtered
}

// merge is Merge of the policies and of HintMerger.
func merge(rule Rule, demands []Demand, lists []Hints) Hint {
	var all [][]Hint
	for _, d := range demands {
		all = append(all, deviceHints(d))
	}
	for _, l := range lists {
		all = append(all, providerHints(l))
	}
	most := 0 // maxOfMinAffinityCounts
	for i := range all {
		if rule.Policy == SingleNUMANode {
			all[i] = filterSingle(all[i])
		}
		narrowest := Mask(0)
		for _, h := range all[i] {
			if h.Nodes != 0 && (narrowest == 0 || h.Nodes.Narrower(narrowest)) {
				narrowest = h.Nodes
			}
		}
		most = max(most, narrowest.Count())
	}
	var best *Hint
	var permute func(i int, chosen []Hint)
	permute = func(i int, chosen []Hint) {
		if i == len(all) {
			best = compare(rule, best, mergePermutation(rule.Machine, chosen), most)
			return
		}
		for _, h := range all[i] {
			permute(i+1, append(chosen, h))
		}
	}
	permute(0, nil)
	if best == nil {
		best = &Hint{rule.Machine, false}
	}
	if rule.Policy == SingleNUMANode && best.Nodes == rule.Machine {
		return Hint{0, best.Preferred}
	}
	return *best
}

// mergePermutation is the function of that name.
func mergePermutation(machine Mask, permutation []Hint) Hint {
	merged := Hint{machine, true}
	first := Mask(0)
	for _, h := range permutation {
		if h.Nodes != 0 {
			if first == 0 {
				first = h.Nodes
			}
			merged.Nodes &= h.Nodes
			merged.Preferred = merged.Preferred && h.Nodes == first
		}
		merged.Preferred = merged.Preferred && h.Preferred
	}
	return merged
}

// compareMasks is CompareNUMAAffinityMasks as NewHintMerger makes it.
func compareMasks(rule Rule, current, candidate *Hint) *Hint {
	best := candidate.Nodes
	switch {
	case candidate.Nodes == current.Nodes:
		return current
	case rule.Policy != SingleNUMANode && rule.Distances != nil:
		best = closest(rule.Distances, current.Nodes, candidate.Nodes)
	case current.Nodes.Narrower(candidate.Nodes):
		best = current.Nodes
	}
	if best == current.Nodes {
		return current
	}
	return candidate
}

// closest is NUMAInfo.Closest.
func closest(distances [][]int, m1, m2 Mask) Mask {
	narrowest := m2
	if m1.Narrower(m2) {
		narrowest = m1
	}
	if m1.Count() != m2.Count() {
		return narrowest
	}
	average := func(m Mask) float64 {
		var count, sum float64
		for _, a := range m.Numbers() {
			for _, b := range m.Numbers() {
				sum += float64(distances[a][b])
				count++
			}
		}
		return sum / count
	}
	switch d1, d2 := average(m1), average(m2); {
	case d1 == d2 && m1 < m2, d1 < d2:
		return m1
	default:
		return m2
	}
}

// compare is HintMerger.compare, case by case.
func compare(rule Rule, current *Hint, candidate Hint, most int) *Hint {
	if candidate.Nodes == 0 {
		return current
	}
	if current == nil {
		return &candidate
	}
	have, get := current.Nodes.Count(), candidate.Nodes.Count()
	switch {
	case !current.Preferred && candidate.Preferred:
		return &candidate
	case current.Preferred && !candidate.Preferred:
		return current
	case current.Preferred && candidate.Preferred:
		return compareMasks(rule, current, &candidate)
	case have > most: // case 1
		return compareMasks(rule, current, &candidate)
	case have == most: // case 2
		if get != most {
			return current
		}
		return compareMasks(rule, current, &candidate)
	case get > most: // case 3a
		return current
	case get == most: // case 3b
		return &candidate
	case get > have: // case 3ca
		return &candidate
	case get < have: // case 3cb
		return current
	default: // case 3cc
		return compareMasks(rule, current, &candidate)
	}
}
