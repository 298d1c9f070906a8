package managers

import (
	"fmt"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memory "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/utils/cpuset"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/cluster/verdict"
)

// The policies under which containers get CPUs and memory of their own.
const (
	cpuStatic    = "static"
	memoryStatic = "Static"
)

// quiet is for the kubelet's code, which logs all that it does.
var quiet = logr.Discard()

// machine is what the managers of a node go by. It never changes.
type machine struct {
	policy  string                // of the Topology Manager
	cpus    *topology.CPUTopology // nil where the CPU manager's policy is not static
	kept    cpuset.CPUSet         // reserved CPUs
	keeps   int                   // how many there are
	options map[string]string
	memory  memory.NUMANodeMap // with nothing given out; nil where the memory manager's policy is not Static
	system  map[int]map[v1.ResourceName]uint64
	nodes   []int // NUMA nodes
	held    []v1alpha1.Held
	used    memory.NUMANodeMap // memory, when all that is held is given out
}

// New makes the managers of a published node; nil where neither gives containers anything alone. It is an
// error where the object contradicts itself.
func New(spec *v1alpha1.Spec) (verdict.Managers, error) {
	m := &machine{policy: spec.Kubelet.TopologyManagerPolicy, held: spec.Held}
	for _, n := range spec.NUMANodes {
		m.nodes = append(m.nodes, n.Number)
	}
	if spec.Kubelet.CPUManagerPolicy == cpuStatic {
		if err := m.readCPUs(spec); err != nil {
			return nil, err
		}
	}
	if spec.Kubelet.MemoryManagerPolicy == memoryStatic {
		m.readMemory(spec)
		if err := m.readReserved(spec); err != nil {
			return nil, err
		}
	}
	if m.cpus == nil && m.memory == nil {
		return nil, nil
	}
	if _, err := m.policies(&store{}); err != nil {
		return nil, err
	}
	return m, nil
}

// policies are the kubelet's. They remember what init containers leave to the rest of their pod.
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
