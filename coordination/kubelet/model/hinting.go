// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// Hinting is the input of the decision about the NUMA hints of a node's pools of VFs.
type Hinting struct {
	Kubelet Kubelet // an unknown policy counts as restricted, an unknown manager as static
	Nodes   []int   // NUMA nodes of the machine
	CPUs    []int   // NUMA nodes with CPUs
	GPUs    []Resource
	Pools   []Pool
}

// Pool is a pool of VFs, with the NUMA nodes of the machine.
type Pool struct {
	Resource
	Fixed bool // the pool has hints in any case
}

// mostMerge is the time that the kubelet may take to merge the hints of a container: no other pod is admitted
// meanwhile.
const mostMerge MergeTime = 0.1

// Decide returns the reason against the hints of each pool whose hints are not fixed, by name; "" for no
// reason. A pool has hints if both conditions hold:
//
//   - The kubelet admits each container with k GPUs of one resource and k VFs, or all VFs of a smaller pool,
//     on an empty node if it admits the GPUs alone. Devices that are ill count, so that the decision lasts.
//   - The kubelet merges the hints of the GPUs, of all pools with hints, and of CPUs and memory if their
//     managers are static, in less than 0.1 s. The estimate is an upper bound: one device of each resource
//     suffices, so that every set of the resource's nodes is a hint. The GPUs of a container are of one
//     resource.
func (h Hinting) Decide() map[string]string {
	against := map[string]string{}
	var hinted []Resource
	for _, p := range h.Pools {
		refused := ""
		if !p.Fixed {
			refused = h.findRefused(p.Resource)
			against[p.Name] = refused
		}
		if refused == "" {
			hinted = append(hinted, p.Resource)
		}
	}
	if took := h.longestMerge(hinted); len(hinted) > 0 && took >= mostMerge {
		for name, refused := range against {
			against[name] = cmp.Or(refused,
				fmt.Sprintf("the kubelet would take about %s to merge the hints of a container", took))
		}
	}
	return against
}

// findRefused names the smallest container that the kubelet rejects on an empty node for the hints of a pool;
// "" for none. More NUMA nodes than a kubelet has without the option max-allowable-numa-nodes are not judged.
func (h Hinting) findRefused(pool Resource) string {
	rule, vfs := h.ruleOf(), perNode(pool)
	for _, r := range h.GPUs {
		gpus := perNode(r)
		for k := 1; k <= len(r.Devices); k++ {
			m := min(k, len(pool.Devices))
			ofGPUs, ofVFs := Demand{Count: k, All: gpus, Free: gpus}, Demand{Count: m, All: vfs, Free: vfs}
			if rule.TooMany(ofGPUs, ofVFs) {
				return fmt.Sprintf("the devices are on more than %d NUMA nodes", MaxNodes)
			}
			if _, admitted := rule.Nodes([]Demand{ofGPUs}); !admitted {
				continue
			}
			if _, admitted := rule.Nodes([]Demand{ofGPUs, ofVFs}); !admitted {
				return fmt.Sprintf("under policy %s the kubelet would reject %d %s with %d VFs even on an empty node; "+
					"false prefers this to far pairs", rule.Policy, k, r.Name, m)
			}
		}
	}
	return ""
}

// ruleOf returns the rule of the policy: the others admit what restricted admits.
func (h Hinting) ruleOf() Rule {
	if h.Kubelet.TopologyManagerPolicy == string(SingleNUMANode) {
		return Rule{Policy: SingleNUMANode}
	}
	return Rule{Policy: Restricted}
}

// longestMerge returns the greatest time for the hints of a container.
func (h Hinting) longestMerge(pools []Resource) MergeTime {
	const allNodes = 64 // also with the option max-allowable-numa-nodes
	rule := h.ruleOf()
	rule.MaxNodes = allNodes
	var demands []Demand
	for _, r := range pools {
		demands = append(demands, onePiece(perNode(r)))
	}
	if h.Kubelet.CPUManagerPolicy != "none" {
		demands = append(demands, onePiece(oneEach(h.CPUs)))
	}
	if h.Kubelet.MemoryManagerPolicy != "None" {
		demands = append(demands, onePiece(oneEach(h.Nodes)))
	}
	took := rule.MergeTime(demands...)
	for _, r := range h.GPUs {
		took = max(took, rule.MergeTime(append(slices.Clone(demands), onePiece(perNode(r)))...))
	}
	return took
}

func onePiece(devices PerNode) Demand {
	return Demand{Count: 1, All: devices, Free: devices}
}

// perNode counts the devices of a resource.
func perNode(r Resource) (devices PerNode) {
	for _, d := range r.Devices {
		devices.Add(d.NUMA)
	}
	return devices
}

// oneEach returns one piece on each of some NUMA nodes.
func oneEach(nodes []int) (pieces PerNode) {
	for _, n := range nodes {
		pieces.Add(topology.Node(n))
	}
	return pieces
}
