// SPDX-License-Identifier: Apache-2.0

package topologymanager

import (
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// Policies of the Topology Manager.
const (
	None           = "none"
	BestEffort     = "best-effort"
	Restricted     = "restricted"
	SingleNUMANode = "single-numa-node"
)

// defaultMost is the default of max-allowable-numa-nodes.
const defaultMost = 8

// Manager is the configuration of a Topology Manager. The zero value is that of policy restricted.
type Manager struct {
	Policy string // "" means restricted
	Nodes  []int  // NUMA nodes of the machine; the nodes of the devices if nil

	// Distances are the distances between nodes, by number: the option prefer-closest-numa-nodes. Nil without.
	Distances [][]int
	Most      int // the option max-allowable-numa-nodes; 0 for the default
}

// Resource is a requested resource of a container. A device is represented by its NUMA node.
type Resource struct {
	Count    int
	All      []topology.NUMANode // all devices, also allocated and unhealthy ones
	Free     []topology.NUMANode // healthy devices that nobody holds
	Reusable []topology.NUMANode // devices of init containers
}

// Hint is a hint of the CPU or memory manager: NUMA nodes, none for any.
type Hint struct {
	Nodes     []int
	Preferred bool
}

// Affinity returns the NUMA nodes for a container that requests resources; nil for no affinity. It returns
// false if the kubelet rejects the container, also because it does not run on so many nodes. Others are the
// hints of each of the other managers: nil without a preference, empty if the manager can serve no container.
func (m Manager) Affinity(resources []Resource, others ...[]Hint) (nodes []int, admitted bool) {
	if m.Policy == None {
		return nil, true
	}
	machine := m.machine(resources)
	if machine.count() > max(m.Most, defaultMost) {
		return nil, false
	}
	var lists [][]hint
	for _, r := range resources {
		lists = append(lists, m.filter(hints(r, machine)))
	}
	for _, list := range others {
		lists = append(lists, m.filter(read(list)))
	}
	best := m.merge(lists, machine)
	if m.Policy == SingleNUMANode && best.nodes == machine {
		best.nodes = 0
	}
	return best.nodes.numbers(), best.preferred || m.Policy == BestEffort
}

// machine returns the nodes of the machine, at least one.
func (m Manager) machine(resources []Resource) (all set) {
	for _, n := range m.Nodes {
		all |= 1 << n
	}
	for _, r := range resources {
		if m.Nodes == nil {
			all |= setOf(r.All)
		}
	}
	return max(all, 1)
}

// filter returns the hints that the policy admits (filterSingleNumaHints).
func (m Manager) filter(list []hint) []hint {
	if m.Policy != SingleNUMANode {
		return list
	}
	return slices.DeleteFunc(list, func(h hint) bool { return !h.preferred || h.nodes.count() > 1 })
}

// hint is a set of NUMA nodes that can serve a container.
type hint struct {
	nodes     set // 0 for any
	preferred bool
}

// read returns the hints of another manager, at least one (filterProvidersHints).
func read(others []Hint) (list []hint) {
	if len(others) == 0 {
		return []hint{{preferred: others == nil}}
	}
	for _, o := range others {
		h := hint{preferred: o.Preferred}
		for _, n := range o.Nodes {
			h.nodes |= 1 << n
		}
		list = append(list, h)
	}
	return list
}

// hints returns the hints of a resource, at least one.
func hints(r Resource, machine set) (list []hint) {
	bearing := setOf(r.All)
	switch {
	case bearing == 0:
		return []hint{{preferred: true}}
	case len(r.Free)+len(r.Reusable) < r.Count:
		return []hint{{}}
	}
	if bearing &= machine; bearing == 0 {
		bearing = machine
	}
	fewest := bearing.count()
	for nodes := bearing; nodes != 0; nodes = (nodes - 1) & bearing {
		if nodes.has(r.All) >= r.Count {
			fewest = min(fewest, nodes.count())
		}
		reused := nodes.has(r.Reusable)
		if reused == known(r.Reusable) && reused+nodes.has(r.Free) >= r.Count {
			list = append(list, hint{nodes: nodes})
		}
	}
	for i := range list {
		list[i].preferred = list[i].nodes.count() == fewest
	}
	if list == nil {
		return []hint{{}}
	}
	return list
}
