// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/preference"
	"github.com/tandem-k8s/tandem/topology"
)

// slowMerge returns the note on a request whose hints the kubelet merges slowly (kubernetes#137700); else "".
// The kubelet has the settings that Tandem advises: policy restricted and exclusive CPUs, here one.
func slowMerge(n *machine.Node, view *preference.View, requests devicemanager.Requests) string {
	const allNodes = 64 // also on a machine for which the kubelet needs the option max-allowable-numa-nodes
	rule, cpus := hints.Rule{Policy: hints.Restricted, MaxNodes: allNodes}, cpuDemand(n)
	all := append(view.Demands(requests), cpus)
	took := rule.MergeTime(all...)
	if !took.Slow() {
		return ""
	}
	note := fmt.Sprintf("for a container with exclusive CPUs the kubelet takes about %s of CPU time to merge "+
		"the hints on %d NUMA nodes, and with memoryManagerPolicy Static about %s, while no other pod starts",
		took, len(n.Tree.NUMANodes()), rule.MergeTime(append(all, memoryDemand(n))...))
	gpus := slices.DeleteFunc(slices.Clone(requests), func(r devicemanager.Request) bool {
		return r.Resource == int(devicemanager.VF)
	})
	if after := rule.MergeTime(append(view.Demands(gpus), cpus)...); after < took {
		note += fmt.Sprintf(`; "excludeTopology": "auto" in the pool of VFs reduces the first time to about %s`,
			after)
	}
	return note
}

// cpuDemand returns the demand for an exclusive CPU. A recording without lists of CPUs has a CPU on each NUMA
// node.
func cpuDemand(n *machine.Node) hints.Demand {
	nodes := topology.CPUs(n.Sys)
	if len(nodes) == 0 {
		return memoryDemand(n)
	}
	all := topology.CPUSet{}
	for _, cpus := range nodes {
		for cpu := range cpus {
			all[cpu] = true
		}
	}
	return hints.CPUs(1, nodes, all)
}

// memoryDemand returns the demand for a part of the memory of a NUMA node.
func memoryDemand(n *machine.Node) hints.Demand {
	d := hints.Demand{Count: 1}
	for _, number := range n.Tree.NUMANodes() {
		d.All.Add(topology.Node(number))
		d.Free.Add(topology.Node(number))
	}
	return d
}
