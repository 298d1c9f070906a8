// Package hints says which NUMA nodes the kubelet's Topology Manager gives a container, and whether it admits
// it.
//
// The rule is that of pkg/kubelet/cm/topologymanager (policy.go, policy_restricted.go, policy_best_effort.go)
// and devicemanager/topology_hints.go. A hint of a resource is a set of NUMA nodes that has enough free
// devices; it is preferred where it is as small as all devices, free or not, allow. Where all resources
// prefer the same set the container gets the narrowest such set. Elsewhere policy restricted refuses it, and
// best-effort gives it what one hint of every resource has in common. CPUs that a container has alone are a
// demand like devices.
//
// The memory manager can narrow this further, and beyond two nodes the distances between them matter under
// prefer-closest-numa-nodes; neither is looked at.
package hints

import (
	"fmt"
	"slices"
	"strings"
)

// Policy is a Topology Manager policy of the kubelet.
type Policy string

// The policies whose rule is known here.
const (
	Restricted Policy = "restricted"
	BestEffort Policy = "best-effort"
	None       Policy = "none"
)

// ParsePolicy reads a policy as the kubelet's configuration spells it.
func ParsePolicy(s string) (Policy, error) {
	known := []string{string(Restricted), string(BestEffort), string(None)}
	if !slices.Contains(known, s) {
		return "", fmt.Errorf("parse policy %q: want %s", s, strings.Join(known, ", "))
	}
	return Policy(s), nil
}

// Nodes tells which NUMA nodes a container is given, or false where it is refused. The nodes are 0 where any
// will do: under policy none, where no resource has a device with a node, and under best-effort where the
// hints have nothing in common. The kubelet then means all nodes of the machine. Demands that have devices on
// more than [MaxNodes] nodes are refused.
func (p Policy) Nodes(demands ...Demand) (Mask, bool) {
	if p == None {
		return 0, true
	}
	needs := make([]need, 0, 3)
	var all Mask
	for _, d := range demands {
		if nodes := d.All.nodes(); d.Count > 0 && nodes != 0 {
			needs = append(needs, need{Demand: d, nodes: nodes})
			all |= nodes
		}
	}
	switch {
	case all == 0:
		return 0, true
	case all.Count() > MaxNodes:
		return 0, false
	}
	best := agreed(needs)
	if best != 0 || p == Restricted {
		return best, best != 0
	}
	return compromise(needs), true
}

// agreed is the narrowest hint that all resources prefer, 0 for none.
func agreed(needs []need) Mask {
	for i := range needs {
		needs[i].measure()
	}
	best := Mask(0)
	for m := range needs[0].nodes.subsets() {
		if best != 0 && !m.Narrower(best) {
			continue
		}
		if !slices.ContainsFunc(needs, func(n need) bool { return !n.prefers(m) }) {
			best = m
		}
	}
	return best
}

// compromise is what HintMerger of the kubelet makes of hints that are not all preferred or not the same: of
// all that one hint of every resource can have in common, as many nodes as the resource needs that needs
// most; else fewer, but as many as can be; else the narrowest. A resource without a hint does not mind.
func compromise(needs []need) Mask {
	var hints [][]Mask
	most := 0 // BestNonPreferredAffinityCount
	for _, n := range needs {
		if list := n.hints(); len(list) > 0 {
			hints = append(hints, list)
			most = max(most, slices.MinFunc(list, func(a, b Mask) int { return a.Count() - b.Count() }).Count())
		}
	}
	rank := func(m Mask) int {
		if n := m.Count(); n <= most {
			return most - n
		}
		return most + 1
	}
	best := Mask(0)
	eachCommon(hints, func(m Mask) {
		if best == 0 || rank(m) < rank(best) || rank(m) == rank(best) && m.Narrower(best) {
			best = m
		}
	})
	return best
}

// eachCommon visits what one hint of every resource has in common, for all choices of hints that have
// anything.
func eachCommon(hints [][]Mask, visit func(Mask)) {
	if len(hints) == 0 {
		return
	}
	for _, m := range hints[0] {
		if len(hints) == 1 {
			visit(m)
			continue
		}
		eachCommon(hints[1:], func(rest Mask) {
			if rest&m != 0 {
				visit(rest & m)
			}
		})
	}
}

// need is a demand for devices that have NUMA nodes.
type need struct {
	Demand
	nodes Mask // that have any device, free or not
	width int  // the smallest number of nodes whose devices, free or not, are enough
}

func (n *need) measure() {
	n.width = n.nodes.Count()
	for m := range n.nodes.subsets() {
		if n.All.On(m) >= n.Count {
			n.width = min(n.width, m.Count())
		}
	}
}

// hints are the sets of nodes with enough free devices.
func (n *need) hints() []Mask {
	var list []Mask
	for m := range n.nodes.subsets() {
		if n.met(m) {
			list = append(list, m)
		}
	}
	return list
}

func (n *need) prefers(m Mask) bool { return m.Count() == n.width && m&^n.nodes == 0 && n.met(m) }

func (n *need) met(m Mask) bool { return n.Free.On(m) >= n.Count && n.Reused.On(n.nodes&^m) == 0 }
