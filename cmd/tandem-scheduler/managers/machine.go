// SPDX-License-Identifier: Apache-2.0

package managers

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	memory "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/utils/cpuset"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// readCPUs builds the CPU manager's topology, like Discover in pkg/kubelet/cm/cpumanager/topology. A core's
// name is its lowest CPU.
func (m *machine) readCPUs(spec *v1alpha1.Spec) error {
	m.cpus = &topology.CPUTopology{CPUDetails: topology.CPUDetails{}}
	sockets, cores := map[int]bool{}, map[int]bool{}
	for _, n := range spec.NUMANodes {
		set, err := n.CPUs.List(v1alpha1.MaxCPUs)
		if err != nil {
			return fmt.Errorf("read CPUs of NUMA node %d: %w", n.Number, err)
		}
		core, err := coresOf(n)
		if err != nil {
			return fmt.Errorf("read cores of NUMA node %d: %w", n.Number, err)
		}
		socket := n.Number
		if n.Socket != nil {
			socket = *n.Socket
		}
		for _, cpu := range set {
			of, several := core[cpu]
			if !several {
				of = cpu
			}
			cores[of], sockets[socket] = true, true
			m.cpus.CPUDetails[cpu] = topology.CPUInfo{
				NUMANodeID: n.Number, SocketID: socket, CoreID: of, UncoreCacheID: socket,
			}
		}
	}
	if len(m.cpus.CPUDetails) == 0 {
		return errors.New("read CPUs: no NUMA node has any; the node's daemon reads them in the kubelet's folder")
	}
	m.cpus.NumCPUs, m.cpus.NumCores = len(m.cpus.CPUDetails), len(cores)
	m.cpus.NumNUMANodes = m.cpus.CPUDetails.NUMANodes().Size()
	if m.cpus.NumNUMANodes > maxNodes {
		return fmt.Errorf("read CPUs: %d NUMA nodes, at most %d are looked at", m.cpus.NumNUMANodes, maxNodes)
	}
	m.cpus.NumSockets, m.cpus.NumUncoreCache = len(sockets), len(sockets)
	m.options, m.keeps = spec.Kubelet.CPUManagerPolicyOptions, spec.Kubelet.ReservedCPUs
	kept, err := v1alpha1.Set(spec.Kubelet.ReservedSystemCPUs).List(v1alpha1.MaxCPUs)
	if err != nil {
		return fmt.Errorf("read reserved CPUs: %w", err)
	}
	if m.kept = cpuset.New(kept...); !m.kept.IsEmpty() {
		m.keeps = m.kept.Size()
	}
	return nil
}

// coresOf returns the core of each CPU that has siblings.
func coresOf(n v1alpha1.NUMANode) (map[int]int, error) {
	cores := map[int]int{}
	for _, core := range n.Cores {
		threads, err := core.List(v1alpha1.MaxCPUs)
		if err != nil {
			return nil, err
		}
		for _, cpu := range threads {
			if _, twice := cores[cpu]; twice {
				return nil, fmt.Errorf("CPU %d is in several cores", cpu)
			}
			cores[cpu] = threads[0]
		}
	}
	return cores, nil
}

// readMemory builds the memory manager's input: the memory of all nodes, and the free part.
func (m *machine) readMemory(spec *v1alpha1.Spec) error {
	if len(spec.NUMANodes) > maxNodes {
		return fmt.Errorf("read memory: %d NUMA nodes, at most %d are looked at", len(spec.NUMANodes), maxNodes)
	}
	m.kinds = map[v1.ResourceName]bool{}
	for _, n := range spec.NUMANodes {
		for kind := range n.Memory {
			m.kinds[v1.ResourceName(kind)] = true
		}
	}
	if !m.kinds[v1.ResourceMemory] {
		return errors.New("read memory: no NUMA node has any; the node's daemon reads it in the kubelet's folder")
	}
	m.memory, m.system = memory.NUMANodeMap{}, map[int]map[v1.ResourceName]uint64{}
	for _, n := range spec.NUMANodes {
		state := &memory.NUMANodeState{MemoryMap: map[v1.ResourceName]*memory.MemoryTable{}, Cells: []int{n.Number}}
		m.system[n.Number] = map[v1.ResourceName]uint64{}
		for kind := range m.kinds { // the kubelet's code expects all kinds on all nodes
			state.MemoryMap[kind] = &memory.MemoryTable{}
		}
		for kind, size := range n.Memory {
			state.MemoryMap[v1.ResourceName(kind)] = &memory.MemoryTable{
				TotalMemSize: size.Total, SystemReserved: size.SystemReserved, Allocatable: size.Allocatable,
				Free: size.Allocatable,
			}
			m.system[n.Number][v1.ResourceName(kind)] = size.SystemReserved
		}
		m.memory[n.Number] = state
	}
	return m.readReserved(spec)
}

// readReserved builds m.used, the memory with all holdings of the object allocated.
func (m *machine) readReserved(spec *v1alpha1.Spec) error {
	m.used = m.memory.Clone()
	for _, r := range spec.MemoryReserved {
		node := m.used[r.NUMANode]
		group, err := r.Group.List(v1alpha1.MaxNUMANodes)
		if node == nil || err != nil || len(group) == 0 {
			return fmt.Errorf("read reserved memory of NUMA node %d: no such node, or its group %.40q is wrong",
				r.NUMANode, r.Group)
		}
		node.Cells = group
		for kind, size := range r.Memory {
			table := node.MemoryMap[v1.ResourceName(kind)]
			if table == nil || table.Allocatable < size {
				return fmt.Errorf("read reserved memory of NUMA node %d: it has no %d bytes of %s", r.NUMANode, size,
					kind)
			}
			table.Free, table.Reserved = table.Allocatable-size, size
		}
	}
	return nil
}
