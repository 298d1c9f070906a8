// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"math/rand/v2"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/topology"
)

// The CPUs and the memory of machines are made up, as recordings do not tell cores and memory, and so few
// that pods have to do without.
const (
	gigabyte       = 1 << 30
	reservedMemory = gigabyte // of each NUMA node
)

// manage gives a world CPUs and memory, and static managers in most cases: one of them, or both.
func (w *judgedWorld) manage(random *rand.Rand) {
	w.equip(random)
	w.kubelet.CPUManagerPolicy, w.kubelet.MemoryManagerPolicy = "none", "None"
	if random.IntN(3) > 0 {
		w.kubelet.CPUManagerPolicy = "static"
		w.kubelet.CPUManagerPolicyOptions = w.cpuOptions(random)
		w.kubelet.ReservedSystemCPUs = "0"
		if random.IntN(2) == 0 {
			w.kubelet.ReservedSystemCPUs = string(v1alpha1.SetOf(w.numa[0].Cores[0]...))
		}
	}
	if random.IntN(3) > 0 {
		w.kubelet.MemoryManagerPolicy = "Static"
	}
}

// equip puts CPUs and memory on the NUMA nodes, most often the same on each.
func (w *judgedWorld) equip(random *rand.Rand) {
	threads, perSocket := 1+random.IntN(2), 1+random.IntN(2)
	most, memory, huge := 2+random.IntN(7), uint64(8+random.IntN(25)), uint64(random.IntN(2)*4)
	uneven := random.IntN(3) == 0
	count := 0
	for i := range w.numa {
		n := &w.numa[i]
		cores := most
		n.CPUs, n.Cores, n.Socket = nil, nil, i/perSocket
		n.Memory, n.HugePages = memory*gigabyte, huge*gigabyte
		if uneven && i > 0 { // node 0 has what is reserved
			cores = random.IntN(most + 1)
			n.Memory -= uint64(random.IntN(3)) * gigabyte
		}
		for range cores {
			n.Cores = append(n.Cores, []int{count})
			count++
		}
	}
	for i := range w.numa { // second threads have the higher numbers
		n := &w.numa[i]
		for k := range n.Cores {
			if threads == 2 {
				n.Cores[k] = append(n.Cores[k], n.Cores[k][0]+count)
			}
		}
		n.CPUs = slices.Concat(n.Cores...)
		slices.Sort(n.CPUs)
	}
}

// cpuOptions are some that the CPU manager takes together.
func (w *judgedWorld) cpuOptions(random *rand.Rand) map[string]string {
	options := map[string]string{}
	for _, name := range []string{
		"full-pcpus-only", "distribute-cpus-across-numa", "strict-cpu-reservation", "align-by-socket",
		"distribute-cpus-across-cores",
	} {
		switch {
		case random.IntN(4) > 0:
		case name == "align-by-socket" && w.kubelet.TopologyManagerPolicy == "single-numa-node":
		case name == "distribute-cpus-across-cores" &&
			(options["full-pcpus-only"] != "" || options["distribute-cpus-across-numa"] != ""):
		default:
			options[name] = "true"
		}
	}
	return options
}

// options are those of the kubelet's managers.
func (w *judgedWorld) options() node.Options {
	o := node.Options{
		NUMA: w.numa, Policy: w.kubelet.TopologyManagerPolicy, Scope: w.kubelet.TopologyManagerScope,
		PolicyOptions: w.kubelet.TopologyManagerPolicyOptions,
		ReservedCPUs:  w.kubelet.ReservedSystemCPUs, CPUOptions: w.kubelet.CPUManagerPolicyOptions,
	}
	if w.hasMemory() {
		o.ReservedMemory = reservedMemory
	}
	return o
}

func (w *judgedWorld) nodeCPUs() map[int]topology.CPUSet {
	cpus := map[int]topology.CPUSet{}
	for _, n := range w.numa {
		cpus[n.ID] = setOf(n.CPUs)
	}
	return cpus
}

func (w *judgedWorld) hasCPUs() bool   { return w.kubelet.CPUManagerPolicy == "static" }
func (w *judgedWorld) hasMemory() bool { return w.kubelet.MemoryManagerPolicy == "Static" }

func setOf[N int | int64](numbers []N) topology.CPUSet {
	set := topology.CPUSet{}
	for _, n := range numbers {
		set[int(n)] = true
	}
	return set
}

// managed adds what the CPU manager and the memory manager have written into the kubelet's folder.
func (n *judgedNode) managed(f *publish.Facts) {
	var noCPUs, noMemory error
	if n.world.hasCPUs() {
		f.CPUs = kubelet.Read(kubelet.ReadCPUState(n.dir))
		_, noCPUs = f.CPUs.Get()
	}
	if n.world.hasMemory() {
		f.Memory = kubelet.Read(kubelet.ReadMemoryState(n.dir))
		_, noMemory = f.Memory.Get()
	}
	must(n.t, errors.Join(noCPUs, noMemory))
}

// claim makes a pod one of class Guaranteed, whose containers get memory of their own and, where they ask for
// whole ones, CPUs.
func (n *judgedNode) claim(pod *v1.Pod) {
	largest := slices.MaxFunc(n.world.numa, func(a, b node.NUMA) int { return len(a.CPUs) - len(b.CPUs) })
	share := len(pod.Spec.Containers)
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			cpus := int64(1000 * n.some(len(largest.CPUs), share))
			if n.random.IntN(5) == 0 {
				cpus += 500
			}
			limits := list[i].Resources.Limits
			limits[v1.ResourceCPU] = *resource.NewMilliQuantity(cpus, resource.DecimalSI)
			limits[v1.ResourceMemory] = gigabytes(n.some(int(largest.Memory/gigabyte), share))
			if largest.HugePages > 0 && n.random.IntN(3) == 0 {
				limits["hugepages-2Mi"] = gigabytes(n.some(int(largest.HugePages/gigabyte), share))
			}
			list[i].Resources.Requests = limits
		}
	}
}

// some is most often a small part of what a NUMA node has, and at times a little more than all of it.
func (n *judgedNode) some(ofNode, share int) int {
	most := ofNode*5/4/share + 1
	if n.random.IntN(3) > 0 {
		most = min(most, max(2, ofNode/4))
	}
	return 1 + n.random.IntN(most)
}

func gigabytes(count int) resource.Quantity {
	return *resource.NewQuantity(int64(count)*gigabyte, resource.BinarySI)
}

// ownCPUs are those that a container is to have alone.
func ownCPUs(pod *v1.Pod, c *v1.Container) int {
	cpus := c.Resources.Requests.Cpu()
	if qos.GetPodQOS(pod) != v1.PodQOSGuaranteed || cpus.MilliValue()%1000 != 0 {
		return 0
	}
	return int(cpus.Value())
}

// hasAll reports whether a container has devices, and CPUs and memory that are its own.
func (n *judgedNode) hasAll(pod *v1.Pod) bool {
	return n.world.hasMemory() && slices.ContainsFunc(pod.Spec.Containers, func(c v1.Container) bool {
		return len(n.node.Devices(pod, c.Name)) > 0 && len(n.node.ExclusiveCPUs(pod, c.Name)) > 0
	})
}

// crowding is the share of the CPUs or of the memory that containers have alone, whichever is more.
func (n *judgedNode) crowding() float64 {
	cpus, memory, all := 0, int64(0), int64(1)
	for _, pod := range n.admitted {
		for _, c := range node.Containers(pod) {
			cpus += len(n.node.ExclusiveCPUs(pod, c.Name))
			if n.world.hasMemory() && qos.GetPodQOS(pod) == v1.PodQOSGuaranteed {
				memory += c.Resources.Requests.Memory().Value()
			}
		}
	}
	for _, numa := range n.world.numa {
		all += int64(numa.Memory - numa.HugePages - reservedMemory)
	}
	return max(float64(cpus)/float64(1+len(n.node.AllocatableCPUs())), float64(memory)/float64(all))
}
