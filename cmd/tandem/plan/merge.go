// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// merge is the kubelet's merge of the hints of a container's devices with those of an exclusive CPU, and with
// those of memory if memoryManagerPolicy is Static. The other settings are those that Tandem advises.
type merge struct {
	rule         hints.Rule
	cpus, memory hints.Demand
}

func newMerge(n *machine.Node) merge {
	const allNodes = 64 // also on a machine for which the kubelet needs the option max-allowable-numa-nodes
	return merge{
		rule:   hints.Rule{Policy: hints.Restricted, MaxNodes: allNodes},
		cpus:   everywhere(model.HintedNodes(n.Sys, n.Tree)),
		memory: everywhere(n.Tree.NUMANodes()),
	}
}

// everywhere returns the demand for a part of a resource that each of some NUMA nodes has.
func everywhere(nodes []int) hints.Demand {
	d := hints.Demand{Count: 1}
	for _, number := range nodes {
		d.All.Add(topology.Node(number))
		d.Free.Add(topology.Node(number))
	}
	return d
}

// times returns the kubelet's CPU time for some devices without and with hints of memory.
func (m merge) times(devices []hints.Demand) (without, with hints.MergeTime) {
	all := append(slices.Clone(devices), m.cpus)
	return m.rule.MergeTime(all...), m.rule.MergeTime(append(all, m.memory)...)
}

// note returns the note on a request whose hints the kubelet merges slowly (kubernetes#137700); else "".
func (m merge) note(view *devicemanager.View, requests devicemanager.Requests) string {
	devices := view.Demands(requests)
	took, withMemory := m.times(devices)
	if !took.Slow() && !withMemory.Slow() {
		return ""
	}
	widest := m.cpus.Nodes()
	for _, d := range devices {
		widest = max(widest, d.Nodes())
	}
	note := fmt.Sprintf("for a container with exclusive CPUs the kubelet takes about %s of CPU time to merge "+
		"the hints on %s, and with memoryManagerPolicy Static about %s on %s, while no other pod starts",
		took, document.Count(widest, "NUMA node"), withMemory, document.Count(m.memory.Nodes(), "NUMA node"))
	gpus := slices.DeleteFunc(slices.Clone(requests), func(r devicemanager.Request) bool {
		return r.Resource == int(devicemanager.VF)
	})
	if after, afterMemory := m.times(view.Demands(gpus)); after < took {
		note += fmt.Sprintf(`; "excludeTopology": "auto" in the pool of VFs reduces the times to about %s and %s`,
			after, afterMemory)
	}
	return note
}
