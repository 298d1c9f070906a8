// SPDX-License-Identifier: Apache-2.0

// Package managers runs the kubelet's CPU and memory managers for published nodes: the kubelet's own code, on
// the CPUs and memory in a node's object. Package verdict queries their hints.
//
// The results are exact for the static policies with all options except those for uncore caches, which the
// object does not contain. Options behind a feature gate of the kubelet (CPUManagerPolicyAlphaOptions) need
// the same gate here. Pod-level resources follow the default feature gates of the kubelet's version: such
// pods get no exclusive CPUs or memory.
//
// The package builds with the kubelet of 1.37, and with that of 1.36 under the build tag kubernetes136.
package managers

import (
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memory "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/utils/cpuset"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/verdict"
)

// Policies under which containers get exclusive CPUs and memory.
const (
	cpuStatic    = "static"
	memoryStatic = "Static"
)

// quiet discards the log of the kubelet's code.
var quiet = logr.Discard()

// machine is the input of a node's managers. A machine is immutable.
type machine struct {
	policy  string                // of the Topology Manager
	cpus    *topology.CPUTopology // nil if the CPU manager's policy is not static
	kept    cpuset.CPUSet         // reserved CPUs
	keeps   int                   // how many there are
	options map[string]string
	memory  memory.NUMANodeMap       // nothing allocated; nil if the manager's policy is not Static
	kinds   map[v1.ResourceName]bool // kinds of memory of any node
	system  map[int]map[v1.ResourceName]uint64
	nodes   []int // NUMA nodes
	held    []v1alpha1.Held
	used    memory.NUMANodeMap // memory, with all holdings allocated
}

// New returns the managers of a published node, or nil if neither allocates exclusively. The object must be
// valid (Spec.Validate). If a manager's part of the object is unknown, for example a policy option of a newer
// kubelet, New omits that manager, and returns the other one together with an error.
func New(spec *v1alpha1.Spec) (verdict.Managers, error) {
	m := &machine{policy: spec.Kubelet.TopologyManagerPolicy, held: spec.Held}
	for _, n := range spec.NUMANodes {
		m.nodes = append(m.nodes, n.Number)
	}
	err := errors.Join(m.addCPUs(spec), m.addMemory(spec))
	if m.cpus == nil && m.memory == nil {
		return nil, err
	}
	return m, err
}

func (m *machine) addCPUs(spec *v1alpha1.Spec) error {
	if spec.Kubelet.CPUManagerPolicy != cpuStatic {
		return nil
	}
	err := m.readCPUs(spec)
	if err == nil {
		_, err = m.policies(&store{})
	}
	if err != nil {
		m.cpus = nil
	}
	return err
}

func (m *machine) addMemory(spec *v1alpha1.Spec) error {
	if spec.Kubelet.MemoryManagerPolicy != memoryStatic {
		return nil
	}
	err := m.readMemory(spec)
	if err == nil {
		_, err = m.policies(&store{})
	}
	if err != nil {
		m.memory = nil
	}
	return err
}

// maxNodes limits the NUMA nodes with CPUs, and those with memory: the kubelet's managers try all sets of
// nodes for each container.
const maxNodes = v1alpha1.MaxDeviceNodes

// policies are the kubelet's policies. They remember the resources that init containers leave to their pod.
type policies struct {
	cpus   cpumanager.Policy
	memory memorymanager.Policy
}

func (m *machine) policies(affinity *store) (p policies, err error) {
	if m.cpus != nil {
		p.cpus, err = cpumanager.NewStaticPolicy(quiet, m.cpus, m.keeps, m.kept, affinity, m.options)
		if err != nil {
			return p, fmt.Errorf("make CPU manager: %w", err)
		}
	}
	if m.memory != nil {
		p.memory, err = memorymanager.NewPolicyStatic(quiet, nil, m.system, affinity)
		if err != nil {
			return p, fmt.Errorf("make memory manager: %w", err)
		}
	}
	return p, nil
}

// store tells the managers the NUMA nodes of the container in admission.
type store struct {
	policy string
	hint   topologymanager.TopologyHint
}

// set sets the Topology Manager's merged hint for the next container. An unrestricted hint means all nodes,
// but has no nodes under the policies single-numa-node and none.
func (s *store) set(best model.Hint, all []int) error {
	s.hint = topologymanager.TopologyHint{Preferred: best.Preferred}
	numbers := best.Nodes.Numbers()
	if numbers == nil {
		if s.policy == topologymanager.PolicySingleNumaNode || s.policy == topologymanager.PolicyNone {
			return nil
		}
		numbers = all
	}
	mask, err := bitmask.NewBitMask(numbers...)
	s.hint.NUMANodeAffinity = mask
	return err
}

// GetPolicy returns a policy of the right name; the managers read nothing else.
func (s *store) GetPolicy() topologymanager.Policy {
	if s.policy == topologymanager.PolicySingleNumaNode {
		return topologymanager.NewSingleNumaNodePolicy(nil, topologymanager.PolicyOptions{})
	}
	return topologymanager.NewNonePolicy()
}

// Name returns the container scope; the managers do not read the name.
func (s *store) Name() string { return topologymanager.ContainerTopologyScope }

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
	m.kept = cpuset.New(kept...)
	if !m.kept.IsEmpty() {
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
