// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/topology"
)

// BuildSpec returns the specification of a node's NodeTopology from the other facts, the kubelet's
// configuration in f.Spec, and the devices of containers, by "pod UID/container".
func BuildSpec(f Facts, held map[string]kubelet.Devices) v1alpha1.Spec {
	spec := v1alpha1.Spec{
		Kubelet: f.Spec.Kubelet, Alignment: f.Spec.Alignment, Resources: []v1alpha1.Resource{},
		Switches: newSwitches(f.Tree, f.Resources), Links: newLinks(f.Resources),
		Held: newHoldings(f, held), MemoryReserved: memoryReserved(f),
	}
	for _, r := range f.Resources {
		spec.Resources = append(spec.Resources, newResource(f.Tree, r))
	}
	for _, n := range f.NUMANodes {
		spec.NUMANodes = append(spec.NUMANodes, newNUMANode(f, n))
	}
	spec.Summary = newSummary(spec, f.Gone)
	return spec
}

// set collects the numbers of devices by resource, or by NUMA node.
type set map[string][]int

func (s set) addNumber(of string, number int) { s[of] = append(s[of], number) }

// sets converts the numbers; nil for an empty set.
func (s set) sets() map[string]v1alpha1.Set {
	if len(s) == 0 {
		return nil
	}
	written := map[string]v1alpha1.Set{}
	for name, numbers := range s {
		written[name] = v1alpha1.SetOf(numbers...)
	}
	return written
}

// newResource returns a resource with its devices and their physical functions. The kubelet marks devices
// unhealthy while their plugin is absent.
func newResource(tree *topology.Tree, r *device.Resource) v1alpha1.Resource {
	published := v1alpha1.Resource{Name: r.Name, Kind: v1alpha1.Kind(r.Kind), Devices: len(r.Devices)}
	var unhealthy []int
	hints := set{}
	for number, d := range r.Ordered() {
		if !d.Healthy || !r.Joined {
			unhealthy = append(unhealthy, number)
		}
		if node, known := d.NUMA.Number(); known {
			hints.addNumber(strconv.Itoa(node), number)
		}
	}
	published.Unhealthy, published.Hints = v1alpha1.SetOf(unhealthy...), hints.sets()
	addFunctions(&published, tree, r)
	return published
}

// addFunctions adds the physical functions of a resource's devices.
func addFunctions(published *v1alpha1.Resource, tree *topology.Tree, r *device.Resource) {
	functions := map[topology.Address][]int{}
	last := map[topology.Address]bool{} // by the health of a device
	for number, d := range r.Ordered() {
		function := d.Address
		if found, ok := tree.Device(function); ok {
			function = found.Function()
		}
		functions[function] = append(functions[function], number)
		last[function] = last[function] || d.Degraded
	}
	var degraded []int
	for i, function := range slices.SortedFunc(maps.Keys(functions), topology.Address.Compare) {
		published.Functions = append(published.Functions, v1alpha1.SetOf(functions[function]...))
		published.Addresses = append(published.Addresses, function.String())
		d, ok := tree.Device(function)
		if last[function] || ok && d.PCIe.DegradedOf(published.Kind == v1alpha1.GPU) {
			degraded = append(degraded, i)
		}
	}
	published.Degraded = v1alpha1.SetOf(degraded...)
	if len(functions) == len(r.Devices) {
		published.Functions = nil
	}
}

// newLinks returns the links between GPUs, or nil if all are equal. A card with several devices is named by
// its first one.
func newLinks(resources []*device.Resource) []v1alpha1.Link {
	refs := map[topology.Address]v1alpha1.GPURef{}
	for _, r := range resources {
		if r.Kind != device.GPU {
			continue
		}
		for number, d := range r.Ordered() {
			if refs[d.Address] == "" {
				refs[d.Address] = v1alpha1.GPURef(r.Name + "/" + strconv.Itoa(number))
			}
		}
	}
	published, kinds := map[[2]topology.Address]v1alpha1.Link{}, map[topology.Link]bool{}
	for _, r := range resources {
		for _, l := range r.Links {
			a, b := l.A, l.B
			if a.Compare(b) > 0 {
				a, b = b, a
			}
			if refs[a] == "" || refs[b] == "" || a == b {
				continue
			}
			published[[2]topology.Address{a, b}] = v1alpha1.Link{
				A: refs[a], B: refs[b], Type: string(l.Type), Hops: l.Hops, Count: l.Count,
			}
			kinds[topology.Link{Type: l.Type, Hops: l.Hops, Count: l.Count}] = true
		}
	}
	if len(kinds) <= 1 && len(published) == len(refs)*(len(refs)-1)/2 {
		return nil
	}
	var all []v1alpha1.Link
	for _, ends := range slices.SortedFunc(maps.Keys(published), func(p, q [2]topology.Address) int {
		return cmp.Or(p[0].Compare(q[0]), p[1].Compare(q[1]))
	}) {
		all = append(all, published[ends])
	}
	return all
}

// newNUMANode returns a NUMA node, with its CPUs and memory if the kubelet's managers assign them
// exclusively, and their containers are known.
func newNUMANode(f Facts, node v1alpha1.NUMANode) v1alpha1.NUMANode {
	if _, unknown := f.CPUs.Get(); unknown != nil {
		node.CPUs, node.Cores, node.Socket = "", nil, nil
	}
	node.Memory = nil
	memory, unknown := f.Memory.Get()
	if machine := memory.Machine[strconv.Itoa(node.Number)]; unknown == nil && len(machine.Memory) > 0 {
		node.Memory = map[string]v1alpha1.Memory{}
		for kind, m := range machine.Memory {
			node.Memory[kind] = v1alpha1.Memory{
				Total: m.Total, SystemReserved: m.SystemReserved, Allocatable: m.Allocatable,
			}
		}
	}
	return node
}

// memoryReserved returns the memory of NUMA nodes that containers hold.
func memoryReserved(f Facts) []v1alpha1.MemoryReserved {
	memory, unknown := f.Memory.Get()
	if unknown != nil {
		return nil
	}
	var all []v1alpha1.MemoryReserved
	for _, n := range f.NUMANodes {
		machine := memory.Machine[strconv.Itoa(n.Number)]
		one := v1alpha1.MemoryReserved{
			NUMANode: n.Number, Group: v1alpha1.SetOf(machine.Cells...), Memory: map[string]uint64{},
		}
		for kind, m := range machine.Memory {
			if m.Reserved > 0 {
				one.Memory[kind] = m.Reserved
			}
		}
		if len(one.Memory) > 0 || len(machine.Cells) > 1 {
			all = append(all, one)
		}
	}
	return all
}

// newHoldings returns the devices, CPUs and memory of pods. Devices without an announcement have no number
// and are omitted. A container with only such devices is listed without devices, and so does not count as on
// the way to the node.
func newHoldings(f Facts, held map[string]kubelet.Devices) []v1alpha1.Held {
	numbers := numberDevices(f.Resources)
	pods := map[string]map[string]*v1alpha1.Container{}
	of := func(uid, name string) *v1alpha1.Container {
		if pods[uid] == nil {
			pods[uid] = map[string]*v1alpha1.Container{}
		}
		if pods[uid][name] == nil {
			pods[uid][name] = &v1alpha1.Container{Name: name}
		}
		return pods[uid][name]
	}
	for container, has := range held {
		devices, ours := set{}, false
		for resource, ids := range has {
			ours = ours || numbers[resource] != nil
			for _, id := range ids {
				if number, known := numbers[resource][id]; known {
					devices.addNumber(resource, number)
				}
			}
		}
		if ours {
			uid, name, _ := strings.Cut(container, "/")
			of(uid, name).Devices = devices.sets()
		}
	}
	if state, unknown := f.CPUs.Get(); unknown == nil {
		for uid, containers := range state.Entries {
			for name, cpus := range containers {
				of(uid, name).CPUs = v1alpha1.Set(cpus)
			}
		}
	}
	if state, unknown := f.Memory.Get(); unknown == nil {
		for uid, containers := range state.Entries {
			for name, blocks := range containers {
				of(uid, name).Memory = newMemory(blocks)
			}
		}
	}
	return sortPods(pods)
}

// numberDevices returns the numbers of devices, by resource and ID.
func numberDevices(resources []*device.Resource) map[string]map[string]int {
	numbers := map[string]map[string]int{}
	for _, r := range resources {
		numbers[r.Name] = map[string]int{}
		for number, d := range r.Ordered() {
			numbers[r.Name][d.ID] = number
		}
	}
	return numbers
}

func newMemory(blocks []kubelet.MemoryBlock) []v1alpha1.MemoryBlock {
	var all []v1alpha1.MemoryBlock
	for _, b := range blocks {
		all = append(all, v1alpha1.MemoryBlock{
			NUMANodes: v1alpha1.SetOf(b.NUMANodes...), Type: b.Type, Size: b.Size,
		})
	}
	slices.SortFunc(all, func(a, b v1alpha1.MemoryBlock) int {
		return strings.Compare(a.Type+" "+string(a.NUMANodes), b.Type+" "+string(b.NUMANodes))
	})
	return all
}

func sortPods(pods map[string]map[string]*v1alpha1.Container) []v1alpha1.Held {
	var all []v1alpha1.Held
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		h := v1alpha1.Held{UID: uid}
		for _, name := range slices.Sorted(maps.Keys(pods[uid])) {
			h.Containers = append(h.Containers, *pods[uid][name])
		}
		all = append(all, h)
	}
	return all
}

// newSummary counts the most important values for people.
func newSummary(s v1alpha1.Spec, gone Gone) v1alpha1.Summary {
	free := freeDevices(s, gone)
	healthy, left := map[v1alpha1.Kind]int{}, map[v1alpha1.Kind]int{}
	for _, r := range s.Resources {
		healthy[r.Kind] += r.Devices - len(r.Unhealthy.Numbers())
		left[r.Kind] += len(free[r.Name])
	}
	var counts v1alpha1.Summary
	for _, on := range s.Switches {
		if countPairs(s, on, nil) > 0 {
			counts.Switches++
			counts.FreePairs += countPairs(s, on, free)
		}
	}
	counts.GPUs = fmt.Sprintf("%d/%d", left[v1alpha1.GPU], healthy[v1alpha1.GPU])
	counts.VFs = fmt.Sprintf("%d/%d", left[v1alpha1.VF], healthy[v1alpha1.VF])
	return counts
}

// countPairs counts the pairs that devices form on a switch: those in free, or all if free is nil.
func countPairs(s v1alpha1.Spec, on v1alpha1.Switch, free map[string]map[int]bool) int {
	count := map[v1alpha1.Kind]int{}
	for _, r := range s.Resources {
		for _, number := range on.Devices[r.Name].Numbers() {
			if !on.Alone && (free == nil || free[r.Name][number]) {
				count[r.Kind]++
			}
		}
	}
	return min(count[v1alpha1.GPU], count[v1alpha1.VF])
}

// freeDevices returns the healthy devices that no pod holds, by resource and number, including those of ended
// pods, which the kubelet reuses.
func freeDevices(s v1alpha1.Spec, gone Gone) map[string]map[int]bool {
	free := map[string]map[int]bool{}
	for _, r := range s.Resources {
		free[r.Name] = map[int]bool{}
		for number := range r.Devices {
			free[r.Name][number] = true
		}
		dropDevices(free[r.Name], r.Unhealthy)
	}
	for _, pod := range s.Held {
		if gone[pod.UID] {
			continue
		}
		for _, container := range pod.Containers {
			for name, devices := range container.Devices {
				dropDevices(free[name], devices)
			}
		}
	}
	return free
}

func dropDevices(from map[int]bool, devices v1alpha1.Set) {
	for _, number := range devices.Numbers() {
		delete(from, number)
	}
}
