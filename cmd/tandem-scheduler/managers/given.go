package managers

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	cpus "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	memory "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/utils/cpuset"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/cluster/verdict"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// given is what the managers of a node have given out. What nothing has changed yet is shared with clones:
// most pods get neither CPUs nor memory of their own.
type given struct {
	*machine
	before *records
	live   *live // nil until something changes
	err    error // of making it: then nothing is given any more
}

// records are what the managers would write down.
type records struct {
	cpus    cpus.ContainerCPUAssignments
	shared  cpuset.CPUSet // CPUs that are nobody's own
	memory  memory.ContainerMemoryAssignments
	machine memory.NUMANodeMap
}

// live are the managers at work.
type live struct {
	policies
	store  store
	cpus   cpus.State
	memory memory.State
}

// Given is that of verdict.Managers: all that the object tells of is given out, and taken back from the pods
// that are gone, as the kubelet does.
func (m *machine) Given(held []v1alpha1.Held) (verdict.Given, error) {
	r := m.nothing()
	if m.memory != nil {
		r.machine = m.used.Clone()
	}
	for _, pod := range m.held {
		for _, c := range pod.Containers {
			if err := r.take(m, pod.UID, c); err != nil {
				return nil, fmt.Errorf("read container %s of pod %s: %w", c.Name, pod.UID, err)
			}
		}
	}
	g := &given{machine: m, before: r}
	for _, pod := range m.held {
		if !slices.ContainsFunc(held, func(h v1alpha1.Held) bool { return h.UID == pod.UID }) {
			g.Remove(types.UID(pod.UID))
		}
	}
	return g, g.err
}

// Empty is that of verdict.Managers.
func (m *machine) Empty() verdict.Given { return &given{machine: m, before: m.nothing()} }

// nothing is given out.
func (m *machine) nothing() *records {
	r := &records{
		cpus: cpus.ContainerCPUAssignments{}, memory: memory.ContainerMemoryAssignments{},
		machine: m.memory.Clone(),
	}
	if m.cpus != nil {
		r.shared = m.cpus.CPUDetails.CPUs()
	}
	return r
}

// take notes what a container holds.
func (r *records) take(m *machine, uid string, c v1alpha1.Container) error {
	if m.cpus != nil && c.CPUs != "" {
		set, err := cpuset.Parse(string(c.CPUs))
		if err != nil {
			return fmt.Errorf("read CPUs: %w", err)
		}
		if r.cpus[uid] == nil {
			r.cpus[uid] = map[string]cpuset.CPUSet{}
		}
		r.cpus[uid][c.Name] = set
		r.shared = r.shared.Difference(set)
	}
	if m.memory == nil || len(c.Memory) == 0 {
		return nil
	}
	if r.memory[uid] == nil {
		r.memory[uid] = map[string][]memory.Block{}
	}
	for _, b := range c.Memory {
		nodes, err := cpuset.Parse(string(b.NUMANodes))
		if err != nil {
			return fmt.Errorf("read NUMA nodes of memory: %w", err)
		}
		block := memory.Block{NUMAAffinity: nodes.List(), Type: v1.ResourceName(b.Type), Size: b.Size}
		if err := r.count(block); err != nil {
			return err
		}
		r.memory[uid][c.Name] = append(r.memory[uid][c.Name], block)
	}
	return nil
}

// count notes that a block of memory is of its nodes; how much of each is known.
func (r *records) count(b memory.Block) error {
	for _, number := range b.NUMAAffinity {
		node := r.machine[number]
		if node == nil || node.MemoryMap[b.Type] == nil {
			return fmt.Errorf("NUMA node %d has no %s", number, b.Type)
		}
		node.NumberOfAssignments++
	}
	return nil
}

// Clone is that of verdict.Given.
func (g *given) Clone() verdict.Given {
	c := &given{machine: g.machine, before: g.before, err: g.err}
	if g.live != nil {
		c.before = g.live.records()
	}
	return c
}

func (l *live) records() *records {
	r := &records{}
	if l.cpus != nil {
		r.cpus, r.shared = l.cpus.GetCPUAssignments(), l.cpus.GetDefaultCPUSet()
	}
	if l.memory != nil {
		r.memory, r.machine = l.memory.GetMemoryAssignments(), l.memory.GetMachineState()
	}
	return r
}

// work makes the managers, once something is asked of them.
func (g *given) work() *live {
	if g.live != nil || g.err != nil {
		return g.live
	}
	l := &live{store: store{policy: g.policy}}
	if l.policies, g.err = g.machine.policies(&l.store); g.err != nil {
		return nil
	}
	if g.machine.cpus != nil {
		l.cpus = cpus.NewMemoryState(quiet)
		l.cpus.SetCPUAssignments(g.before.cpus)
		l.cpus.SetDefaultCPUSet(g.before.shared)
	}
	if g.machine.memory != nil {
		l.memory = memory.NewMemoryState(quiet)
		l.memory.SetMemoryAssignments(g.before.memory)
		l.memory.SetMachineState(g.before.machine)
	}
	g.live = l
	return l
}

// concerned reports whether a pod can get CPUs or memory of its own.
func concerned(pod *v1.Pod) bool { return qos.GetPodQOS(pod) == v1.PodQOSGuaranteed }

// Hints is that of verdict.Given.
func (g *given) Hints(pod *v1.Pod, container *v1.Container) []hints.List {
	if !concerned(pod) {
		return nil
	}
	l := g.work()
	if l == nil {
		return nil
	}
	var all []hints.List
	for _, provided := range l.hints(pod, container) {
		for _, name := range slices.Sorted(maps.Keys(provided)) {
			all = append(all, list(provided[name]))
		}
	}
	return all
}

// list translates the hints of one resource.
func list(provided []topologymanager.TopologyHint) hints.List {
	if provided == nil {
		return nil
	}
	translated := hints.List{}
	for _, h := range provided {
		one := hints.Hint{Preferred: h.Preferred}
		if h.NUMANodeAffinity != nil {
			for _, node := range h.NUMANodeAffinity.GetBits() {
				one.Nodes |= 1 << node
			}
		}
		translated = append(translated, one)
	}
	return translated
}

// Take is that of verdict.Given.
func (g *given) Take(pod *v1.Pod, container *v1.Container, best hints.Hint) error {
	if !concerned(pod) {
		return nil
	}
	l := g.work()
	if l == nil {
		return g.err
	}
	if err := l.store.set(best, g.nodes); err != nil {
		return err
	}
	return l.allocate(pod, container)
}

// Remove is that of verdict.Given.
func (g *given) Remove(uid types.UID) {
	holder := string(uid)
	if g.live == nil && g.before.cpus[holder] == nil && g.before.memory[holder] == nil {
		return
	}
	l := g.work()
	if l == nil {
		return
	}
	if l.cpus != nil {
		for name := range l.cpus.GetCPUAssignments()[holder] {
			// it fails for what the state does not hold alone
			_ = l.policies.cpus.RemoveContainer(quiet, l.cpus, holder, name)
		}
	}
	if l.memory != nil {
		for name := range l.memory.GetMemoryAssignments()[holder] {
			l.policies.memory.RemoveContainer(quiet, l.memory, holder, name)
		}
	}
}
