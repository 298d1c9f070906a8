// SPDX-License-Identifier: Apache-2.0

package managers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	cpus "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	memory "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/utils/cpuset"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/verdict"
)

// managerState is the state of a node's managers: the exclusive CPUs and memory of containers. Clones share
// the unchanged part, as most pods get neither exclusive CPUs nor memory.
type managerState struct {
	*machine
	before *records
	live   *liveManagers // nil until something changes
	err    error         // of the managers' creation; with an error, nothing is allocated
}

// records are the contents of the managers' checkpoints.
type records struct {
	cpus     cpus.ContainerCPUAssignments
	shared   cpuset.CPUSet // CPUs without an exclusive owner
	memory   memory.ContainerMemoryAssignments
	machine  memory.NUMANodeMap
	assigned []int // CPUs of containers, while the object is read; those of several containers repeat
}

// maxAssigned bounds the CPUs of containers in an object: init containers leave theirs to other containers of
// the pod.
const maxAssigned = 8 * v1alpha1.MaxCPUs

// liveManagers are the managers at work.
type liveManagers struct {
	policies
	store  store
	cpus   cpus.State
	memory memory.State
}

// Restore implements verdict.Managers: it allocates all holdings in the object, then releases those of
// deleted pods, as the kubelet does. Released CPUs leave no trace; the grouping of memory depends on past
// holders.
func (m *machine) Restore(held []v1alpha1.Held) (verdict.ManagerState, error) {
	r := m.nothing()
	if m.memory != nil {
		r.machine = m.used.Clone()
	}
	present := make(map[string]bool, len(held))
	for i := range held {
		present[held[i].UID] = true
	}
	for _, pod := range m.held {
		for _, c := range pod.Containers {
			if !present[pod.UID] {
				c.CPUs = ""
			}
			if err := r.take(m, pod.UID, c); err != nil {
				return nil, fmt.Errorf("read container %s of pod %s: %w", c.Name, pod.UID, err)
			}
		}
	}
	r.shared, r.assigned = r.shared.Difference(cpuset.New(r.assigned...)), nil
	g := &managerState{machine: m, before: r}
	for _, pod := range m.held {
		if !present[pod.UID] {
			g.Remove(types.UID(pod.UID))
		}
	}
	return g, g.err
}

// Empty implements verdict.Managers.
func (m *machine) Empty() verdict.ManagerState { return &managerState{machine: m, before: m.nothing()} }

// nothing returns records without any allocation.
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

// take records the holdings of a container.
func (r *records) take(m *machine, uid string, c v1alpha1.Container) error {
	if m.cpus != nil && c.CPUs != "" {
		list, err := c.CPUs.List(v1alpha1.MaxCPUs)
		if err != nil {
			return fmt.Errorf("read CPUs: %w", err)
		}
		r.assigned = append(r.assigned, list...)
		if len(r.assigned) > maxAssigned {
			return fmt.Errorf("read CPUs: containers have more than %d", maxAssigned)
		}
		set := cpuset.New(list...)
		if r.cpus[uid] == nil {
			r.cpus[uid] = map[string]cpuset.CPUSet{}
		}
		r.cpus[uid][c.Name] = set
	}
	if m.memory == nil || len(c.Memory) == 0 {
		return nil
	}
	if r.memory[uid] == nil {
		r.memory[uid] = map[string][]memory.Block{}
	}
	for _, b := range c.Memory {
		nodes, err := b.NUMANodes.List(v1alpha1.MaxNUMANodes)
		if err != nil {
			return fmt.Errorf("read NUMA nodes of memory: %w", err)
		}
		block := memory.Block{NUMAAffinity: nodes, Type: v1.ResourceName(b.Type), Size: b.Size}
		if err := r.count(block); err != nil {
			return err
		}
		r.memory[uid][c.Name] = append(r.memory[uid][c.Name], block)
	}
	return nil
}

// count assigns a block of memory to its nodes; the amounts are already known.
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

// Concerns implements verdict.Managers: pods that guaranteedCPUs and Allocate of the static policies
// (pkg/kubelet/cm/cpumanager and memorymanager, policy_static.go) skip are not in the kubelet's state.
func (m *machine) Concerns(pod *v1.Pod) bool {
	if r := pod.Spec.Resources; !concerned(pod) || r != nil && len(r.Requests)+len(r.Limits) > 0 {
		return false
	}
	for _, containers := range [...][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if m.gives(&containers[i]) {
				return true
			}
		}
	}
	return false
}

// gives reports whether a container of a Guaranteed pod gets exclusive CPUs or memory.
func (m *machine) gives(c *v1.Container) bool {
	cpu := c.Resources.Requests.Cpu()
	whole := !cpu.IsZero() && cpu.MilliValue()%1000 == 0
	return m.cpus != nil && whole || m.memory != nil && !c.Resources.Requests.Memory().IsZero()
}

// Clone implements verdict.ManagerState.
func (g *managerState) Clone() verdict.ManagerState {
	c := &managerState{machine: g.machine, before: g.before, err: g.err}
	if g.live != nil {
		c.before = g.live.records()
	}
	return c
}

func (l *liveManagers) records() *records {
	r := &records{}
	if l.cpus != nil {
		r.cpus, r.shared = l.cpus.GetCPUAssignments(), l.cpus.GetDefaultCPUSet()
	}
	if l.memory != nil {
		r.memory, r.machine = l.memory.GetMemoryAssignments(), l.memory.GetMachineState()
	}
	return r
}

// work returns the managers, and creates them on first use.
func (g *managerState) work() *liveManagers {
	if g.live != nil || g.err != nil {
		return g.live
	}
	l := &liveManagers{store: store{policy: g.policy}}
	l.policies, g.err = g.machine.policies(&l.store)
	if g.err != nil {
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

// concerned reports whether a pod can get exclusive CPUs or memory.
func concerned(pod *v1.Pod) bool { return qos.GetPodQOS(pod) == v1.PodQOSGuaranteed }

// lacks returns a kind of memory that the pod requests and no NUMA node has, or "". The kubelet's code panics
// for such a pod, which other admission handlers reject earlier.
func (m *machine) lacks(pod *v1.Pod) v1.ResourceName {
	if m.memory == nil {
		return ""
	}
	for _, containers := range [...][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for kind := range containers[i].Resources.Requests {
				if strings.HasPrefix(string(kind), v1.ResourceHugePagesPrefix) && !m.kinds[kind] {
					return kind
				}
			}
		}
	}
	return ""
}

// Hints implements verdict.ManagerState.
func (g *managerState) Hints(pod *v1.Pod, container *v1.Container) []model.Hints {
	if !concerned(pod) {
		return nil
	}
	if g.lacks(pod) != "" {
		return []model.Hints{{}} // no nodes will do
	}
	l := g.work()
	if l == nil {
		return nil
	}
	var all []model.Hints
	for _, provided := range l.hints(pod, container) {
		for _, name := range slices.Sorted(maps.Keys(provided)) {
			all = append(all, list(provided[name]))
		}
	}
	return all
}

// list converts the hints of one resource.
func list(provided []topologymanager.TopologyHint) model.Hints {
	if provided == nil {
		return nil
	}
	translated := model.Hints{}
	for _, h := range provided {
		one := model.Hint{Preferred: h.Preferred}
		if h.NUMANodeAffinity != nil {
			for _, node := range h.NUMANodeAffinity.GetBits() {
				one.Nodes |= 1 << node
			}
		}
		translated = append(translated, one)
	}
	return translated
}

// Take implements verdict.ManagerState.
func (g *managerState) Take(pod *v1.Pod, container *v1.Container, best model.Hint) error {
	if !concerned(pod) {
		return nil
	}
	if kind := g.lacks(pod); kind != "" {
		return fmt.Errorf("the node has no %s", kind)
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

// Remove implements verdict.ManagerState.
func (g *managerState) Remove(uid types.UID) {
	holder := string(uid)
	if g.live == nil && g.before.cpus[holder] == nil && g.before.memory[holder] == nil {
		return
	}
	l := g.work()
	if l == nil {
		return
	}
	if l.cpus != nil {
		release(l.cpus, holder)
	}
	if l.memory != nil {
		for name := range l.memory.GetMemoryAssignments()[holder] {
			l.policies.memory.RemoveContainer(quiet, l.memory, holder, name)
		}
	}
}

// release releases a pod's CPUs, like RemoveContainer of the static policy, but without the sum over all
// allocated CPUs for a metric, which takes seconds if many pods hold CPUs.
func release(s cpus.State, holder string) {
	released := cpuset.New()
	for name, set := range s.GetCPUAssignments()[holder] {
		released = released.Union(set)
		s.Delete(holder, name)
	}
	s.SetDefaultCPUSet(s.GetDefaultCPUSet().Union(released))
}
