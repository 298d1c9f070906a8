// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// Demand is the Topology Manager's view of one resource of a container.
type Demand struct {
	Count  int     // requested devices
	Named  bool    // the container names the resource: for a request of 0 the kubelet prefers one node
	All    PerNode // all devices of the resource, including allocated and unhealthy devices
	Free   PerNode // available devices, including Reused
	Reused PerNode // devices of an init container; the nodes must contain all
}

// Nodes returns the number of NUMA nodes with devices of the resource, over which its hints range.
func (d Demand) Nodes() int { return d.All.nodesWith().Count() }

// PerNode is the number of devices on each NUMA node, by the number of the node. Nodes beyond the end have
// none.
type PerNode []int

// Add counts a device. A device with an unknown node, or with a number beyond [Mask], counts on no node.
func (p *PerNode) Add(node topology.NUMANode) {
	n, known := node.Number()
	if !known || n > 63 {
		return
	}
	if more := n + 1 - len(*p); more > 0 {
		*p = append(*p, make([]int, more)...)
	}
	(*p)[n]++
}

// On returns the number of devices on some nodes.
func (p PerNode) On(m Mask) int {
	sum := 0
	for i, n := range p {
		if m>>i&1 == 1 {
			sum += n
		}
	}
	return sum
}

// nodesWith returns the nodes with devices.
func (p PerNode) nodesWith() Mask {
	var m Mask
	for i, n := range p {
		if n > 0 {
			m |= 1 << i
		}
	}
	return m
}

// CPUDemand returns the demand of a container with exclusive CPUs under the static CPU policy
// (generateCPUTopologyHints in pkg/kubelet/cm/cpumanager/policy_static.go). The arguments are the number, the
// CPUs of every NUMA node, and the available CPUs. The policy's options and the CPUs of init containers are
// ignored.
func CPUDemand(count int, nodes map[int]topology.CPUSet, free topology.CPUSet) Demand {
	d := Demand{Count: count}
	for number, set := range nodes {
		for cpu := range set {
			d.All.Add(topology.Node(number))
			if free[cpu] {
				d.Free.Add(topology.Node(number))
			}
		}
	}
	return d
}

// need is a resource with influence: a demand for devices with NUMA nodes, or the hints of a manager of the
// kubelet.
type need struct {
	Demand
	list  Hints // nil for a demand
	nodes Mask  // nodes with devices, free or not, or of the hints of a list
	width int   // the smallest number of nodes with enough devices, free or not
}

// setWidth sets the width of a demand. The time doubles with each NUMA node: [Rule.MaxNodes] is the limit.
func (n *need) setWidth() {
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

// allHints returns the sets of nodes with enough free devices.
func (n *need) allHints() []Mask {
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
		if n.isMet(m) {
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
		if n.isPreferred(m) {
			visit(m)
		}
	}
}

func (n *need) isPreferred(m Mask) bool {
	if n.list != nil {
		return slices.Contains(n.list, Hint{Nodes: m, Preferred: true})
	}
	return m.Count() == n.width && m&^n.nodes == 0 && n.isMet(m)
}

func (n *need) isMet(m Mask) bool { return n.Free.On(m) >= n.Count && n.Reused.On(^m) == 0 }

// intersectAll returns the distinct intersections of a set of each list, or the second list if the first is
// nil.
func intersectAll(sets, others []Mask) []Mask {
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

// MergeTime is the kubelet's CPU time for a container with policy restricted or best-effort, in seconds:
// HintMerger.Merge (pkg/kubelet/cm/topologymanager/policy.go) tries every combination of a hint of each
// resource, and the kubelet admits no other pod meanwhile (kubernetes#137700).
type MergeTime float64

// perCombination is a fit through the times of kubelet 1.37.1, from 9 combinations in 3 µs to 17 million in
// 6.4 s: 0.27 to 0.42 µs each.
const perCombination MergeTime = 0.386e-6

// Slow reports whether other pods of the node wait for a noticeable time.
func (t MergeTime) Slow() bool { return t >= 1 }

// Hangs reports whether the kubelet appears to hang.
func (t MergeTime) Hangs() bool { return t >= 60 }

// String returns the time with two digits and a unit: "19 ms", "6.4 s", "27 min".
func (t MergeTime) String() string {
	const minute, hour, day, year = 60, 3600, 24 * 3600, 365 * 24 * 3600
	for _, u := range []struct {
		name        string
		unit, until MergeTime
	}{
		{"µs", 1e-6, 1e-3}, {"ms", 1e-3, 1}, {"s", 1, 2 * minute}, {"min", minute, 2 * hour},
		{"hours", hour, 2 * day}, {"days", day, 2 * year},
	} {
		if t < u.until {
			return twoDigits(t/u.unit) + " " + u.name
		}
	}
	return twoDigits(t/year) + " years"
}

// twoDigits returns a number with two digits, or all digits before the point.
func twoDigits(n MergeTime) string {
	if n < 10 {
		return fmt.Sprintf("%.2g", float64(n))
	}
	return fmt.Sprintf("%.0f", float64(n))
}

// MergeTime estimates the kubelet's CPU time for the merge of the hints of all demands of a container. Under
// the policies none and single-numa-node, which combine no wide sets, the time is 0.
func (r Rule) MergeTime(demands ...Demand) MergeTime {
	if r.Policy == PolicyNone || r.Policy == SingleNUMANode {
		return 0
	}
	needs := r.findNeeds(demands)
	if r.tooMany(needs) || len(needs) == 0 {
		return 0
	}
	combinations := 1.0
	for i := range needs {
		combinations *= needs[i].hintCount()
	}
	return MergeTime(combinations) * perCombination
}

// hintCount returns the number of hints of a demand. Without a hint the kubelet uses one that nobody prefers.
func (n *need) hintCount() float64 {
	if nodes := n.nodes.Count(); nodes > 2*MaxNodes { // all sets at most, instead of 2^nodes steps
		return math.Exp2(float64(nodes)) - 1
	}
	count := 0
	for m := range n.nodes.subsets() {
		if n.isMet(m) {
			count++
		}
	}
	return float64(max(count, 1))
}
