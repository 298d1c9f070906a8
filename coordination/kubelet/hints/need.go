// SPDX-License-Identifier: Apache-2.0

package hints

import "slices"

// need is a resource with influence: a demand for devices with NUMA nodes, or the hints of a manager of the
// kubelet.
type need struct {
	Demand
	list  List // nil for a demand
	nodes Mask // nodes with devices, free or not, or of the hints of a list
	width int  // the smallest number of nodes with enough devices, free or not
}

// measure sets the width of a demand. The time doubles with each NUMA node: [Rule.MaxNodes] is the limit.
func (n *need) measure() {
	if n.list != nil {
		return
	}
	n.width = n.nodes.Count()
	for m := range n.nodes.subsets() {
		if n.width > m.Count() && n.All.On(m) >= n.Count {
			n.width = m.Count()
		}
	}
}

// hints returns the sets of nodes with enough free devices.
func (n *need) hints() []Mask {
	var hints []Mask
	for _, h := range n.list {
		if h.Nodes != 0 {
			hints = append(hints, h.Nodes)
		}
	}
	if n.list != nil {
		return hints
	}
	for m := range n.nodes.subsets() {
		if n.met(m) {
			hints = append(hints, m)
		}
	}
	return hints
}

// eachPreferred visits the preferred hints.
func (n *need) eachPreferred(visit func(Mask)) {
	for _, h := range n.list {
		if h.Preferred && h.Nodes != 0 {
			visit(h.Nodes)
		}
	}
	if n.list != nil {
		return
	}
	for m := range n.nodes.subsets() {
		if n.prefers(m) {
			visit(m)
		}
	}
}

func (n *need) prefers(m Mask) bool {
	if n.list != nil {
		return slices.Contains(n.list, Hint{Nodes: m, Preferred: true})
	}
	return m.Count() == n.width && m&^n.nodes == 0 && n.met(m)
}

func (n *need) met(m Mask) bool { return n.Free.On(m) >= n.Count && n.Reused.On(^m) == 0 }

// meet returns the distinct intersections of a set of each list, or the second list if the first is nil.
func meet(sets, others []Mask) []Mask {
	if sets == nil {
		return others
	}
	common := []Mask{}
	seen := map[Mask]bool{}
	for _, a := range sets {
		for _, b := range others {
			if m := a & b; m != 0 && !seen[m] {
				seen[m] = true
				common = append(common, m)
			}
		}
	}
	return common
}
