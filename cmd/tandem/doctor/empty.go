// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// emptyNode is the node without containers, as the coordinator sees it.
type emptyNode struct {
	*Node
	manager model.TopologyManager
	views   machine.Views
}

// emptyUnder returns the empty node under a policy, with the kubelet's other settings. Settings with which no
// kubelet starts count as mended: unknown options are not set, and the machine's NUMA nodes are allowed.
func (n *Node) emptyUnder(policy model.Policy) emptyNode {
	e := emptyNode{Node: n, views: machine.NewViews(n.Links, n.GPUs, n.VFs)}
	settings, nodes := n.settings.Settings, model.ReadNUMANodes(n.Sys, n.Tree.NUMANodes())
	settings.Policy = string(policy)
	read, err := settings.Model()
	if err == nil {
		e.manager, err = read.TopologyManager(nodes)
	}
	if err != nil {
		e.manager = model.TopologyManager{Rule: model.Documented(nodes)}
	}
	e.manager.Rule.MaxNodes = max(e.manager.Rule.MaxNodes, model.MaxNodes, len(nodes))
	return e
}

// Affinity returns the NUMA nodes on which policy restricted puts a container on an empty node, and whether
// the policy admits the container at all.
func (n *Node) Affinity(gpus, vfs int) ([]int, bool) {
	n.readSettings()
	nodes, admitted := n.emptyUnder(model.Restricted).findAffinity(gpus, vfs, n.CPUs)
	return nodes.Numbers(), admitted
}

func (e emptyNode) findAffinity(gpus, vfs, cpus int) (model.Mask, bool) {
	requests := slices.DeleteFunc(machine.NewRequests(gpus, vfs), func(r model.Request) bool {
		return r.Count == 0 // the container does not name the resource
	})
	return e.views.Nodes(e.manager.Rule, requests, e.cpuDemand(cpus))
}

// cpuDemand returns the demand for a number of exclusive CPUs, without influence if the kubelet aligns no
// CPUs.
func (e emptyNode) cpuDemand(count int) model.Demand {
	k := e.settings
	reserved, err := k.reservedSet()
	if k.CPUPolicy != static || err != nil {
		return model.Demand{}
	}
	return model.CPUDemand(count, k.CPUs, k.allCPUs().Without(reserved))
}

// countTogether returns how many of n pairs can be on one switch each, with devices of these NUMA nodes;
// without NUMA nodes, with all devices.
func (e emptyNode) countTogether(n int, nodes model.Mask) int {
	all := e.views.All
	choice, err := placement.Choose(e.Tree, all.Placement(all.Expected(machine.NewRequests(n, n), nodes)))
	if err != nil {
		return 0
	}
	return placement.Together(choice.Pairs)
}

// merge is the kubelet's merge of the hints of a container that requests as little as possible of each
// resource: such a container has the most hints.
type merge struct {
	emptyNode
	now       bool // also under the present policy
	providers []provider
}

// provider is a resource with hints.
type provider struct {
	name   string // for people
	kind   providerKind
	demand model.Demand
}

type providerKind int

const (
	ofGPUs providerKind = iota
	ofVFs
	ofCPUs
	ofMemory
)

func (e emptyNode) readMerge() merge {
	m, k := merge{emptyNode: e}, e.settings
	if k.Policy == "" {
		return m // unknown
	}
	m.now = model.Policy(k.Policy) == model.Restricted || model.Policy(k.Policy) == model.BestEffort
	m.addProvider("GPUs", ofGPUs, e.GPUs)
	for _, pool := range e.VFs {
		name := "VFs"
		if pool.Name != "" {
			name += " of " + pool.Name
		}
		m.addProvider(name, ofVFs, pool.Devices)
	}
	if k.CPUPolicy == static {
		m.addNodes(k.Says("cpuManagerPolicy", k.CPUPolicy), ofCPUs, topology.NodesWithCPUs(k.CPUs))
	}
	if k.MemoryPolicy == "Static" {
		m.addNodes(k.Says("memoryManagerPolicy", k.MemoryPolicy), ofMemory, e.Tree.NUMANodes())
	}
	return m
}

func (m *merge) addNodes(name string, kind providerKind, nodes []int) {
	var list []model.Device
	for _, number := range nodes {
		list = append(list, model.Device{NUMA: topology.Node(number)})
	}
	m.addProvider(name, kind, list)
}

// addProvider adds a resource, unless no device has a NUMA node.
func (m *merge) addProvider(name string, kind providerKind, devices []model.Device) {
	p := provider{name: name, kind: kind, demand: model.Demand{Count: 1}}
	for _, d := range devices {
		p.demand.All.Add(d.NUMA)
		p.demand.Free.Add(d.NUMA)
	}
	if p.demand.Nodes() > 0 {
		m.providers = append(m.providers, p)
	}
}

// timeWithout returns the kubelet's CPU time for a container without resources of some kinds.
func (m merge) timeWithout(without ...providerKind) model.MergeTime {
	var demands []model.Demand
	for _, p := range m.providers {
		if !slices.Contains(without, p.kind) {
			demands = append(demands, p.demand)
		}
	}
	return m.manager.Rule.MergeTime(demands...)
}

func (n *Node) findSlowMerge(f *Finding) {
	m := n.shapes.readMerge()
	took := m.timeWithout()
	if !took.Slow() {
		return
	}
	if took.Hangs() {
		f.Severity = Error
	}
	widest := 0
	for _, p := range m.providers {
		widest = max(widest, p.demand.Nodes())
		f.addSeen("%s: hints over %s", p.name, cli.Count(p.demand.Nodes(), "NUMA node"))
	}
	takes := "The kubelet takes"
	if !m.now {
		takes = "Under policy restricted the kubelet would take"
	}
	f.Summary = fmt.Sprintf("%s about %s of CPU time to admit a container with NUMA hints of %s on %s.", takes,
		took, cli.Count(len(m.providers), "resource"), cli.Count(widest, "NUMA node"))
	f.Fix = m.listRemedies()
	if !m.timeWithout(ofVFs).Slow() {
		m.markGuess(f)
	}
}

// listRemedies returns the remedies, each with the time that remains after those before.
func (m merge) listRemedies() (fix []string) {
	left := m.timeWithout()
	if after := m.timeWithout(ofVFs); after < left {
		fix = append(fix, fmt.Sprintf(`"excludeTopology": "auto" in each pool of VFs (config.json; true in `+
			`SriovNetworkNodePolicy): about %s`, after))
		left = after
	}
	if after := m.timeWithout(ofVFs, ofMemory); left.Slow() && after < left {
		fix = append(fix, fmt.Sprintf("memoryManagerPolicy: None in the kubelet's configuration: about %s", after))
	}
	return append(fix, "fewer NUMA nodes: NPS1 or no sub-NUMA clustering in the firmware")
}
