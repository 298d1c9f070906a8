// SPDX-License-Identifier: Apache-2.0

package hints

// Rule is how the Topology Manager of a node decides: its policy with the options, and the machine.
type Rule struct {
	Policy Policy
	// Machine are the NUMA nodes of the machine. Devices on others count as the kubelet counts them: they are
	// nowhere. 0 stands for all nodes that devices are on.
	Machine Mask
	// Distances are those between nodes, by their numbers, where the option prefer-closest-numa-nodes is on; nil
	// where it is not.
	Distances [][]int
	// MaxNodes is the option max-allowable-numa-nodes; 0 stands for [MaxNodes].
	MaxNodes int
}

// Nodes tells which NUMA nodes a container is given that has these demands, and hints of other managers, or
// false where it is refused. The nodes are 0 where any will do: under policy none, where no resource has a
// device with a node, under best-effort where the hints have nothing in common, and under single-numa-node
// where the machine has one node alone. The kubelet then means all nodes of the machine. Where there are more
// nodes than MaxNodes all is refused: such a kubelet does not start.
func (r Rule) Nodes(demands []Demand, lists ...List) (Mask, bool) {
	best, admitted := r.Merge(demands, lists...)
	return best.Nodes, admitted
}

// Merge is Nodes, and tells whether all resources prefer these nodes.
func (r Rule) Merge(demands []Demand, lists ...List) (best Hint, admitted bool) {
	if r.Policy == None {
		return Hint{}, true
	}
	needs := make([]need, 0, 8)
	for _, d := range demands {
		if n, any := r.need(d); any {
			needs = append(needs, n)
		}
	}
	for _, l := range lists {
		if !l.indifferent() {
			needs = append(needs, need{list: l, nodes: l.nodes()})
		}
	}
	if r.tooMany(needs) {
		return Hint{}, false
	}
	if len(needs) == 0 {
		return Hint{Preferred: true}, true
	}
	agreed := r.agreed(needs)
	switch {
	case agreed == 0 && r.Policy == BestEffort:
		return Hint{Nodes: r.compromise(needs)}, true
	case agreed == 0:
		return Hint{}, false
	case r.Policy == SingleNUMANode && agreed == r.Machine:
		return Hint{Preferred: true}, true
	default:
		return Hint{agreed, true}, true
	}
}

// need is what the Topology Manager sees of a demand, false for what has no say.
func (r Rule) need(d Demand) (need, bool) {
	nodes := d.All.nodes()
	if nodes == 0 || d.Count == 0 && !d.Named {
		return need{}, false
	}
	if r.Machine != 0 {
		nodes &= r.Machine
	}
	n := need{Demand: d, nodes: nodes}
	n.measure()
	return n, true
}

// tooMany reports whether the kubelet would not start with these NUMA nodes.
func (r Rule) tooMany(needs []need) bool {
	all := r.Machine
	if all == 0 {
		for _, n := range needs {
			all |= n.nodes
		}
	}
	most := r.MaxNodes
	if most == 0 {
		most = MaxNodes
	}
	return all.Count() > most
}

// agreed is the best set of nodes that all resources prefer, 0 for none.
func (r Rule) agreed(needs []need) Mask {
	best := Mask(0)
	needs[0].eachPreferred(func(m Mask) {
		if r.Policy == SingleNUMANode && m.Count() > 1 || best != 0 && !r.closer(m, best) {
			return
		}
		for i := range needs[1:] {
			if !needs[1+i].prefers(m) {
				return
			}
		}
		best = m
	})
	return best
}

// compromise is what HintMerger of the kubelet makes of hints that are not all preferred or not the same: of
// all that one hint of every resource can have in common, as many nodes as the resource needs that needs
// most; else fewer, but as many as can be; else the narrowest. A resource without a hint does not mind.
func (r Rule) compromise(needs []need) Mask {
	var common []Mask // what one hint of every resource so far can have in common
	most := 0         // BestNonPreferredAffinityCount
	for i := range needs {
		hints := needs[i].hints()
		if len(hints) == 0 {
			continue
		}
		least := hints[0].Count()
		for _, h := range hints {
			least = min(least, h.Count())
		}
		most = max(most, least)
		common = meet(common, hints)
	}
	rank := func(m Mask) int {
		if n := m.Count(); n <= most {
			return most - n
		}
		return most + 1
	}
	best := Mask(0)
	for _, m := range common {
		if best == 0 || rank(m) < rank(best) || rank(m) == rank(best) && r.closer(m, best) {
			best = m
		}
	}
	return best
}

// closer reports whether the kubelet takes one set of nodes rather than another of which it thinks as highly
// (CompareNUMAAffinityMasks): the narrower one, of those with as many nodes the one whose nodes are closer to
// each other where that is asked for, then the one with lower numbers.
func (r Rule) closer(m, than Mask) bool {
	if r.Distances != nil && r.Policy != SingleNUMANode && m.Count() == than.Count() {
		if a, b := r.average(m), r.average(than); a != b {
			return a < b
		}
	}
	return m.Narrower(than)
}

// average is CalculateAverageFor in pkg/kubelet/cm/topologymanager/numa_info.go: each node is as far from
// itself as the firmware says.
func (r Rule) average(m Mask) float64 {
	numbers, sum := m.Numbers(), 0
	for _, a := range numbers {
		for _, b := range numbers {
			if a < len(r.Distances) && b < len(r.Distances[a]) {
				sum += r.Distances[a][b]
			}
		}
	}
	return float64(sum) / float64(len(numbers)*len(numbers))
}

// Width is the smallest number of NUMA nodes whose devices, free or not, are enough for a demand: that is how
// many it prefers. It is 0 for a demand that has no say.
func (r Rule) Width(d Demand) int {
	n, _ := r.need(d)
	return n.width
}

// Affinity returns the NUMA nodes to which the device manager aligns the devices of a container with this
// hint of [Rule.Merge]. A hint without affinity stands for all nodes of the machine, but for none under
// policies none and single-numa-node.
func (r Rule) Affinity(best Hint) Mask {
	switch {
	case best.Nodes != 0 || r.Policy == None || r.Policy == SingleNUMANode:
		return best.Nodes
	case r.Machine != 0:
		return r.Machine
	default:
		return ^Mask(0)
	}
}
