// SPDX-License-Identifier: Apache-2.0

package hints

import "github.com/tandem-k8s/tandem/topology"

// Demand is one resource of a container as the Topology Manager looks at it.
type Demand struct {
	Count  int     // devices wanted
	Named  bool    // the container names the resource: of one of which it wants 0 the kubelet wants one node
	All    PerNode // every device of the resource, allocated and unhealthy ones too
	Free   PerNode // those that can be had now, the Reused ones among them
	Reused PerNode // those that are taken over from an init container: the nodes must have them all
}

// PerNode is a number of devices on each NUMA node, the index being the number of the node. Beyond its end
// there are none.
type PerNode []int

// Add counts a device. One whose node is unknown, or has a number that no [Mask] has, counts on no node.
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

// On is the number of devices on some nodes.
func (p PerNode) On(m Mask) int {
	sum := 0
	for i, n := range p {
		if m>>i&1 == 1 {
			sum += n
		}
	}
	return sum
}

// nodes are those that have any device.
func (p PerNode) nodes() Mask {
	var m Mask
	for i, n := range p {
		if n > 0 {
			m |= 1 << i
		}
	}
	return m
}

// CPUs is the demand of a container that is to have so many CPUs alone, under the static CPU policy
// (generateCPUTopologyHints in pkg/kubelet/cm/cpumanager/policy_static.go). Nodes are the CPUs of every NUMA
// node, free those that can be had now. The policy's options are not looked at, nor what an init container
// hands on.
func CPUs(count int, nodes map[int]topology.CPUSet, free topology.CPUSet) Demand {
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
