// SPDX-License-Identifier: Apache-2.0

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
		if p.memory, err = memorymanager.NewPolicyStatic(quiet, nil, m.system, affinity); err != nil {
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
