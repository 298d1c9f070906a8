// SPDX-License-Identifier: Apache-2.0

package hints

import "github.com/tandem-k8s/tandem/topology"

// Demand is the Topology Manager's view of one resource of a container.
type Demand struct {
	Count  int     // requested devices
	Named  bool    // the container names the resource: for a request of 0 the kubelet prefers one node
	All    PerNode // all devices of the resource, including allocated and unhealthy devices
	Free   PerNode // available devices, including Reused
	Reused PerNode // devices of an init container; the nodes must contain all
}

// Nodes returns the number of NUMA nodes with devices of the resource, over which its hints range.
func (d Demand) Nodes() int { return d.All.nodes().Count() }

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

// nodes returns the nodes with devices.
func (p PerNode) nodes() Mask {
	var m Mask
	for i, n := range p {
		if n > 0 {
			m |= 1 << i
		}
	}
	return m
}

// CPUs returns the demand of a container with exclusive CPUs under the static CPU policy
// (generateCPUTopologyHints in pkg/kubelet/cm/cpumanager/policy_static.go). The arguments are the number, the
// CPUs of every NUMA node, and the available CPUs. The policy's options and the CPUs of init containers are
// ignored.
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
