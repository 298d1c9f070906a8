// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strings"
)

// Policy is a Topology Manager policy of the kubelet.
type Policy string

// The kubelet's policies.
const (
	Restricted     Policy = "restricted"
	BestEffort     Policy = "best-effort"
	SingleNUMANode Policy = "single-numa-node"
	PolicyNone     Policy = "none"
)

// ParsePolicy parses a policy in the kubelet's spelling.
func ParsePolicy(s string) (Policy, error) {
	known := []string{string(Restricted), string(BestEffort), string(SingleNUMANode), string(PolicyNone)}
	if !slices.Contains(known, s) {
		return "", fmt.Errorf("parse policy %q: want %s", s, strings.Join(known, ", "))
	}
	return Policy(s), nil
}

// Nodes returns the same as [Rule.Nodes] for a rule with only a policy.
func (p Policy) Nodes(demands ...Demand) (Mask, bool) { return Rule{Policy: p}.Nodes(demands) }

// Rule is the rule of a node's Topology Manager: the policy with the options, and the machine. It chooses the
// NUMA nodes of a container, or rejects the container.
//
// The rule follows pkg/kubelet/cm/topologymanager (policy.go, policy_restricted.go, policy_best_effort.go,
// policy_single_numa_node.go, numa_info.go) and devicemanager/topology_hints.go. A hint of a resource is a
// set of NUMA nodes with enough free devices; the preferred hints have as few nodes as all devices, free or
// not, permit. If all resources prefer a common set, the container gets the narrowest common set. Otherwise
// policy restricted rejects the container, and best-effort intersects one hint of every resource. Policy
// single-numa-node uses only preferred hints of one node. Exclusive CPUs of a container are a demand like
// devices; the hints of the kubelet's other managers are [Hints].
type Rule struct {
	Policy Policy
	// Machine are the NUMA nodes of the machine; 0 means all nodes with devices. As in the kubelet, devices on
	// other nodes count on no node.
	Machine Mask
	// Distances are the distances between nodes, by number, for the option prefer-closest-numa-nodes; nil
	// without.
	Distances [][]int
	// MaxNodes is the option max-allowable-numa-nodes; 0 means [MaxNodes].
	MaxNodes int
}

// Nodes returns the NUMA nodes for a container with demands and with hints of other managers, or false for a
// rejection. The result is 0, for all nodes of the machine,
//
//   - under policy none;
//   - if no resource has a device with a node;
//   - under best-effort if the hints have nothing in common;
//   - under single-numa-node if the machine has only one node.
//
// With more nodes than MaxNodes every container is rejected: the kubelet does not start.
func (r Rule) Nodes(demands []Demand, lists ...Hints) (Mask, bool) {
	best, admitted := r.Merge(demands, lists...)
	return best.Nodes, admitted
}

// Merge returns the same as Nodes, and whether all resources prefer these nodes.
func (r Rule) Merge(demands []Demand, lists ...Hints) (best Hint, admitted bool) {
	if r.Policy == PolicyNone {
		return Hint{}, true
	}
	needs := r.findNeeds(demands, lists...)
	if r.tooMany(needs) {
		return Hint{}, false
	}
	for i := range needs {
		needs[i].setWidth()
	}
	if len(needs) == 0 {
		return Hint{Preferred: true}, true
	}
	agreed := r.findAgreed(needs)
	switch {
	case agreed == 0 && r.Policy == BestEffort:
		return Hint{Nodes: r.findCompromise(needs)}, true
	case agreed == 0:
		return Hint{}, false
	case r.Policy == SingleNUMANode && agreed == r.Machine:
		return Hint{Preferred: true}, true
	default:
		return Hint{agreed, true}, true
	}
}

// TooMany reports whether demands have devices on more NUMA nodes than the limit: [Rule.Nodes] rejects every
// container.
func (r Rule) TooMany(demands ...Demand) bool {
	return r.Policy != PolicyNone && r.tooMany(r.findNeeds(demands))
}

// findNeeds returns the demands and the lists with influence, not yet measured.
func (r Rule) findNeeds(demands []Demand, lists ...Hints) []need {
	needs := make([]need, 0, 8)
	for _, d := range demands {
		if n, any := r.newNeed(d); any {
			needs = append(needs, n)
		}
	}
	for _, l := range lists {
		if !l.isIndifferent() {
			needs = append(needs, need{list: l, nodes: l.allNodes()})
		}
	}
	return needs
}

// newNeed returns the Topology Manager's view of a demand, not yet measured, and false for a demand without
// influence. Devices on nodes of the machine decide which nodes the kubelet tries; without such devices it
// tries all nodes of the machine (generateDeviceTopologyHints).
func (r Rule) newNeed(d Demand) (need, bool) {
	nodes := d.All.nodesWith()
	if nodes == 0 || d.Count == 0 && !d.Named {
		return need{}, false
	}
	if r.Machine != 0 {
		nodes = cmp.Or(nodes&r.Machine, r.Machine)
	}
	return need{Demand: d, nodes: nodes}, true
}

// tooMany reports whether the number of NUMA nodes exceeds the limit.
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

// findAgreed returns the best set of nodes that all resources prefer, 0 for none.
func (r Rule) findAgreed(needs []need) Mask {
	best := Mask(0)
	needs[0].eachPreferred(func(m Mask) {
		if r.Policy == SingleNUMANode && m.Count() > 1 || best != 0 && !r.isCloser(m, best) {
			return
		}
		for i := range needs[1:] {
			if !needs[1+i].isPreferred(m) {
				return
			}
		}
		best = m
	})
	return best
}

// findCompromise returns the result of the kubelet's HintMerger for hints that differ or are not all
// preferred. Among the intersections of one hint of every resource, the best has as many nodes as the widest
// demand needs; else fewer, but as many as possible; else the fewest. A resource without a hint has no
// influence.
func (r Rule) findCompromise(needs []need) Mask {
	var common []Mask // intersections of one hint of every resource so far
	most := 0         // BestNonPreferredAffinityCount
	for i := range needs {
		hints := needs[i].allHints()
		if len(hints) == 0 {
			continue
		}
		least := hints[0].Count()
		for _, h := range hints {
			least = min(least, h.Count())
		}
		most = max(most, least)
		common = intersectAll(common, hints)
	}
	rank := func(m Mask) int {
		if n := m.Count(); n <= most {
			return most - n
		}
		return most + 1
	}
	best := Mask(0)
	for _, m := range common {
		if best == 0 || rank(m) < rank(best) || rank(m) == rank(best) && r.isCloser(m, best) {
			best = m
		}
	}
	return best
}

// isCloser reports whether the kubelet prefers a set of nodes to another set of the same rank
// (CompareNUMAAffinityMasks): by fewer nodes, then by the average distance with prefer-closest-numa-nodes,
// then by lower numbers.
func (r Rule) isCloser(m, than Mask) bool {
	if r.Distances != nil && r.Policy != SingleNUMANode && m.Count() == than.Count() {
		if a, b := r.averageDistance(m), r.averageDistance(than); a != b {
			return a < b
		}
	}
	return m.Narrower(than)
}

// averageDistance returns the same as CalculateAverageFor in pkg/kubelet/cm/topologymanager/numa_info.go,
// including the firmware's distance of each node from itself.
func (r Rule) averageDistance(m Mask) float64 {
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

// Width returns the preferred number of NUMA nodes for a demand: the smallest number of nodes with enough
// devices, free or not. The result is 0 for a demand without influence, and on more nodes than the limit.
func (r Rule) Width(d Demand) int {
	n, any := r.newNeed(d)
	if !any || r.tooMany([]need{n}) {
		return 0
	}
	n.setWidth()
	return n.width
}

// Hints returns a demand as the hints of a manager, which have the same influence.
func (r Rule) Hints(d Demand) Hints {
	n, any := r.newNeed(d)
	if !any || r.tooMany([]need{n}) {
		return nil
	}
	n.setWidth()
	list := Hints{}
	for m := range n.nodes.subsets() {
		if n.isMet(m) {
			list = append(list, Hint{m, n.isPreferred(m)})
		}
	}
	return list
}

// Affinity returns the NUMA nodes to which the device manager aligns the devices of a container with this
// hint of [Rule.Merge]. A hint without affinity stands for all nodes of the machine, but for none under
// policies none and single-numa-node.
func (r Rule) Affinity(best Hint) Mask {
	switch {
	case best.Nodes != 0 || r.Policy == PolicyNone || r.Policy == SingleNUMANode:
		return best.Nodes
	case r.Machine != 0:
		return r.Machine
	default:
		return ^Mask(0)
	}
}

// Mask is a set of NUMA nodes, a bit for each number from 0 to 63, as in
// pkg/kubelet/cm/topologymanager/bitmask.
type Mask uint64

// MaxNodes is the default limit of NUMA nodes, since the kubelet tries all sets of nodes. With more nodes the
// kubelet does not start, unless the option max-allowable-numa-nodes permits more.
const MaxNodes = 8

// Count returns the number of nodes in the set.
func (m Mask) Count() int { return bits.OnesCount64(uint64(m)) }

// Numbers returns the nodes in the set, ascending; nil for none.
func (m Mask) Numbers() []int {
	var numbers []int
	for ; m != 0; m &= m - 1 {
		numbers = append(numbers, bits.TrailingZeros64(uint64(m)))
	}
	return numbers
}

// Narrower reports the same as bitmask.IsNarrowerThan of the kubelet: fewer nodes, then lower numbers.
func (m Mask) Narrower(than Mask) bool {
	if a, b := m.Count(), than.Count(); a != b {
		return a < b
	}
	return m < than
}

// subsets iterates over all subsets except the empty set.
func (m Mask) subsets() iter.Seq[Mask] {
	return func(yield func(Mask) bool) {
		for s := -m & m; s != 0 && yield(s); s = (s - m) & m {
		}
	}
}

// Hint is a set of NUMA nodes with which a manager of the kubelet can serve a container (TopologyHint in
// pkg/kubelet/cm/topologymanager). Nodes is 0 for a hint without affinity.
type Hint struct {
	Nodes     Mask
	Preferred bool
}

// Hints are the hints of the kubelet's CPU or memory manager for one resource. As in the kubelet, nil is
// no preference, and an empty list permits no set of nodes. A hint without affinity is the only one.
type Hints []Hint

// isIndifferent reports whether any set of nodes is acceptable.
func (l Hints) isIndifferent() bool { return l == nil || len(l) == 1 && l[0] == Hint{Preferred: true} }

// allNodes returns the nodes of all hints.
func (l Hints) allNodes() Mask {
	var m Mask
	for _, h := range l {
		m |= h.Nodes
	}
	return m
}
