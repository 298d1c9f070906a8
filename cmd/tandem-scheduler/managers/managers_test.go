// SPDX-License-Identifier: Apache-2.0

//go:build !kubernetes136

package managers

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	cadvisor "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	cpus "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memory "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/verdict"
)

// The verdict on pods with exclusive CPUs and memory equals that of the kubelet's Topology Manager with its
// CPU and memory managers: pods of all kinds come and go, with the holdings published before each verdict.
func TestVerdictIsTheKubelets(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	outcomes := map[bool]int{}
	for world := range 60 {
		k := newKubelet(t, random)
		for i := range 50 {
			for len(k.pods) > 0 && random.IntN(3) == 0 {
				k.remove(random.IntN(len(k.pods)))
			}
			pod := randomPod(random, fmt.Sprint(world, "-", i))
			topology := k.published()
			m, err := New(&topology.Spec)
			if err != nil {
				t.Fatal(err)
			}
			n, err := verdict.New(topology, m)
			if err != nil {
				t.Fatal(err)
			}
			s := n.State(func(types.UID) bool { return true })
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
			told := s.Admit(pod)
			result := k.manager.Admit(k.ctx,
				&lifecycle.PodAdmitAttributes{Pod: pod, Operation: lifecycle.AddOperation})
			if told.Admitted != result.Admit {
				t.Fatalf("%+v\npod %v\ntold %+v\nthe kubelet %+v", topology.Spec, describe(pod), told, result)
			}
			outcomes[told.Admitted]++
			k.concerns(m.(*machine), pod, result.Admit)
			k.pods = append(k.pods, pod)
			if !result.Admit {
				k.remove(len(k.pods) - 1)
			}
		}
	}
	if outcomes[true] < 300 || outcomes[false] < 300 {
		t.Errorf("there is little to compare: %v", outcomes)
	}
}

// An unknown part of one manager does not affect the other.
func TestUnknownParts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil        func(*v1alpha1.Spec)
		cpus, memory bool
	}{
		"nothing": {func(*v1alpha1.Spec) {}, true, true},
		"an option": {func(s *v1alpha1.Spec) {
			s.Kubelet.CPUManagerPolicyOptions = map[string]string{"option-of-tomorrow": "true"}
		}, false, true},
		"CPUs": {func(s *v1alpha1.Spec) { s.NUMANodes[0].CPUs = "0-9999999999" }, false, true},
		"no CPUs": {func(s *v1alpha1.Spec) {
			for i := range s.NUMANodes {
				s.NUMANodes[i].CPUs, s.NUMANodes[i].Cores = "", nil
			}
			s.Kubelet.ReservedSystemCPUs = "0"
		}, false, true},
		"no memory": {func(s *v1alpha1.Spec) {
			for i := range s.NUMANodes {
				s.NUMANodes[i].Memory = nil
			}
		}, true, false},
		"reserved CPUs": {func(s *v1alpha1.Spec) { s.Kubelet.ReservedSystemCPUs = "0-9999999999" }, false, true},
		"memory": {func(s *v1alpha1.Spec) {
			s.MemoryReserved = []v1alpha1.MemoryReserved{{NUMANode: 40, Group: "0"}}
		}, true, false},
	} {
		spec := newKubelet(t, rand.New(rand.NewPCG(1, 2))).published().Spec
		c.spoil(&spec)
		made, err := New(&spec)
		m, _ := made.(*machine)
		if m == nil || m.cpus != nil != c.cpus || m.memory != nil != c.memory || err != nil != (name != "nothing") {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

// A pod with huge pages that the node lacks is refused, because the kubelet's code would panic.
func TestMemoryThatNoNodeHas(t *testing.T) {
	t.Parallel()
	topology := newKubelet(t, rand.New(rand.NewPCG(1, 2))).published()
	topology.Spec.NUMANodes[0].Memory["hugepages-2Mi"] = v1alpha1.Memory{Total: 1 << 30, Allocatable: 1 << 30}
	m, err := New(&topology.Spec)
	if err != nil {
		t.Fatal(err)
	}
	n, err := verdict.New(topology, m)
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[v1.ResourceName]bool{"hugepages-2Mi": true, "hugepages-1Gi": false} {
		list := v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi"),
			kind: resource.MustParse("1Gi"),
		}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "new"}, Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "app", Resources: v1.ResourceRequirements{Limits: list, Requests: list},
		}}}}
		if got := n.State(func(types.UID) bool { return true }).Admit(pod); got.Admitted != want {
			t.Errorf("%s: %+v", kind, got)
		}
	}
}

// kubelet is the Topology Manager with both static policies.
type kubelet struct {
	t       *testing.T
	ctx     context.Context
	spec    v1alpha1.Spec // with nothing held
	manager topologymanager.Manager
	cpus    cpuSide
	memory  memorySide
	pods    []*v1.Pod
}

type cpuSide struct {
	cpumanager.Policy
	state cpus.State
}

func (c cpuSide) GetTopologyHints(
	log klog.Logger, pod *v1.Pod, container *v1.Container, o lifecycle.Operation,
) map[string][]topologymanager.TopologyHint {
	return c.Policy.GetTopologyHints(log, c.state, pod, container, o)
}

func (c cpuSide) GetPodTopologyHints(
	log klog.Logger, pod *v1.Pod, o lifecycle.Operation,
) map[string][]topologymanager.TopologyHint {
	return c.Policy.GetPodTopologyHints(log, c.state, pod, o)
}

func (c cpuSide) AllocatePod(log klog.Logger, pod *v1.Pod, o lifecycle.Operation) error {
	return c.Policy.AllocatePod(log, c.state, pod, o)
}

func (c cpuSide) Allocate(
	ctx context.Context, pod *v1.Pod, container *v1.Container, o lifecycle.Operation,
) error {
	return c.Policy.Allocate(klog.FromContext(ctx), c.state, pod, container, o)
}

type memorySide struct {
	memorymanager.Policy
	state memory.State
}

func (m memorySide) GetTopologyHints(
	log klog.Logger, pod *v1.Pod, container *v1.Container, o lifecycle.Operation,
) map[string][]topologymanager.TopologyHint {
	return m.Policy.GetTopologyHints(log, m.state, pod, container, o)
}

func (m memorySide) GetPodTopologyHints(
	log klog.Logger, pod *v1.Pod, o lifecycle.Operation,
) map[string][]topologymanager.TopologyHint {
	return m.Policy.GetPodTopologyHints(log, m.state, pod, o)
}

func (m memorySide) AllocatePod(log klog.Logger, pod *v1.Pod, o lifecycle.Operation) error {
	return m.Policy.AllocatePod(log, m.state, pod, o)
}

func (m memorySide) Allocate(
	ctx context.Context, pod *v1.Pod, container *v1.Container, o lifecycle.Operation,
) error {
	return m.Policy.Allocate(ctx, m.state, pod, container, o)
}

const gigabyte = 1 << 30

// newKubelet has one or two sockets, each of one or two NUMA nodes, with one or two threads per core.
func newKubelet(t *testing.T, random *rand.Rand) *kubelet {
	t.Helper()
	policies := []string{"restricted", "best-effort", "single-numa-node", "none"}
	spec := v1alpha1.Spec{Kubelet: v1alpha1.Kubelet{
		TopologyManagerPolicy: policies[random.IntN(len(policies))],
		TopologyManagerScope:  []string{"container", "pod"}[random.IntN(2)],
		CPUManagerPolicy:      cpuStatic, MemoryManagerPolicy: memoryStatic, ReservedSystemCPUs: "0",
		CPUManagerPolicyOptions: map[string]string{"full-pcpus-only": fmt.Sprint(random.IntN(2) == 0)},
	}}
	nodes, perSocket, threads := 1+random.IntN(4), 1+random.IntN(2), 1+random.IntN(2)
	if threads == 2 {
		spec.Kubelet.ReservedSystemCPUs = fmt.Sprint("0,", nodes*4)
	}
	machine := &cadvisor.MachineInfo{
		NumSockets: (nodes + perSocket - 1) / perSocket, NumCores: nodes * 4 * threads,
	}
	for n := range nodes {
		described := cadvisor.Node{Id: n, Memory: 16 * gigabyte}
		published := v1alpha1.NUMANode{Number: n, Socket: new(n / perSocket), Memory: map[string]v1alpha1.Memory{
			"memory": {Total: 16 * gigabyte, SystemReserved: gigabyte, Allocatable: 15 * gigabyte},
		}}
		all := cpuset.New()
		for c := range 4 {
			core := cadvisor.Core{Id: n*4 + c, SocketID: n / perSocket}
			for thread := range threads {
				core.Threads = append(core.Threads, thread*nodes*4+n*4+c)
			}
			described.Cores = append(described.Cores, core)
			all = all.Union(cpuset.New(core.Threads...))
			if threads > 1 {
				published.Cores = append(published.Cores, v1alpha1.Set(cpuset.New(core.Threads...).String()))
			}
		}
		published.CPUs = v1alpha1.Set(all.String())
		machine.Topology = append(machine.Topology, described)
		spec.NUMANodes = append(spec.NUMANodes, published)
	}
	k := &kubelet{t: t, ctx: klog.NewContext(t.Context(), quiet), spec: spec}
	k.start(machine)
	return k
}

func (k *kubelet) start(machine *cadvisor.MachineInfo) {
	k.t.Helper()
	must := func(err error) {
		k.t.Helper()
		if err != nil {
			k.t.Fatal(err)
		}
	}
	var err error
	config := k.spec.Kubelet
	k.manager, err = topologymanager.NewManager(quiet, machine.Topology, config.TopologyManagerPolicy,
		config.TopologyManagerScope, nil)
	must(err)
	found, err := topology.Discover(quiet, machine)
	must(err)
	reserved, err := cpuset.Parse(config.ReservedSystemCPUs)
	must(err)
	k.cpus.state = cpus.NewMemoryState(quiet)
	k.cpus.Policy, err = cpumanager.NewStaticPolicy(quiet, found, reserved.Size(), reserved, k.manager,
		config.CPUManagerPolicyOptions)
	must(err)
	must(k.cpus.Start(quiet, k.cpus.state))
	system := map[int]map[v1.ResourceName]uint64{}
	for _, n := range machine.Topology {
		system[n.Id] = map[v1.ResourceName]uint64{v1.ResourceMemory: gigabyte}
	}
	k.memory.state = memory.NewMemoryState(quiet)
	k.memory.Policy, err = memorymanager.NewPolicyStatic(quiet, machine, system, k.manager)
	must(err)
	must(k.memory.Start(quiet, k.memory.state))
	k.manager.AddHintProvider(quiet, k.cpus)
	k.manager.AddHintProvider(quiet, k.memory)
}

// concerns checks that Concerns holds for exactly the pods that get CPUs or memory.
func (k *kubelet) concerns(m *machine, pod *v1.Pod, admitted bool) {
	k.t.Helper()
	_, hasCPUs := k.cpus.state.GetCPUAssignments()[string(pod.UID)]
	_, hasMemory := k.memory.state.GetMemoryAssignments()[string(pod.UID)]
	forCPUs, forMemory := (&machine{cpus: m.cpus}).Concerns(pod), (&machine{memory: m.memory}).Concerns(pod)
	if admitted && (hasCPUs != forCPUs || hasMemory != forMemory) {
		k.t.Errorf("%s: CPUs %t, memory %t; concerns %t and %t", describe(pod), hasCPUs, hasMemory, forCPUs,
			forMemory)
	}
}

func (k *kubelet) remove(i int) {
	pod := k.pods[i]
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if err := k.cpus.RemoveContainer(quiet, k.cpus.state, string(pod.UID), c.Name); err != nil {
			k.t.Fatal(err)
		}
		k.memory.RemoveContainer(quiet, k.memory.state, string(pod.UID), c.Name)
	}
	k.pods = slices.Delete(k.pods, i, i+1)
}

// published returns the object with the checkpoints of both managers.
func (k *kubelet) published() *v1alpha1.NodeTopology {
	topology := &v1alpha1.NodeTopology{Spec: *k.spec.DeepCopy()}
	for _, pod := range k.pods {
		held := v1alpha1.Held{UID: string(pod.UID)}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			one := v1alpha1.Container{Name: c.Name}
			if set, ok := k.cpus.state.GetCPUSet(held.UID, c.Name); ok {
				one.CPUs = v1alpha1.Set(set.String())
			}
			for _, b := range k.memory.state.GetMemoryBlocks(held.UID, c.Name) {
				one.Memory = append(one.Memory, v1alpha1.MemoryBlock{
					NUMANodes: v1alpha1.Set(cpuset.New(b.NUMAAffinity...).String()), Type: string(b.Type), Size: b.Size,
				})
			}
			held.Containers = append(held.Containers, one)
		}
		topology.Spec.Held = append(topology.Spec.Held, held)
	}
	for number, node := range k.memory.state.GetMachineState() {
		topology.Spec.MemoryReserved = append(topology.Spec.MemoryReserved, v1alpha1.MemoryReserved{
			NUMANode: number, Group: v1alpha1.SetOf(node.Cells...),
			Memory: map[string]uint64{"memory": node.MemoryMap[v1.ResourceMemory].Reserved},
		})
	}
	return topology
}

func randomPod(random *rand.Rand, name string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	guaranteed := random.IntN(6) > 0
	container := func(name string) v1.Container {
		limits := v1.ResourceList{
			v1.ResourceCPU:    *resource.NewMilliQuantity(int64(1+random.IntN(12))*500, resource.DecimalSI),
			v1.ResourceMemory: *resource.NewQuantity(int64(1+random.IntN(20))*gigabyte, resource.BinarySI),
		}
		if random.IntN(3) > 0 {
			limits[v1.ResourceCPU] = *resource.NewQuantity(int64(1+random.IntN(8)), resource.DecimalSI)
		}
		requests := maps.Clone(limits)
		if !guaranteed {
			delete(limits, v1.ResourceCPU)
		}
		return v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: limits, Requests: requests}}
	}
	for i := range []int{0, 0, 1, 2}[random.IntN(4)] {
		c := container(fmt.Sprint("init-", i))
		if random.IntN(3) == 0 {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for i := range []int{1, 1, 2}[random.IntN(3)] {
		pod.Spec.Containers = append(pod.Spec.Containers, container(fmt.Sprint("app-", i)))
	}
	return pod
}

func describe(pod *v1.Pod) string {
	var text strings.Builder
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		fmt.Fprintf(&text, "%s: %v CPUs, %v; ", c.Name, c.Resources.Limits.Cpu(), c.Resources.Limits.Memory())
	}
	return text.String()
}
