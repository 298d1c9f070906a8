// SPDX-License-Identifier: Apache-2.0

package object

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish/facts"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// addManaged adds the CPUs and memory of a NUMA node if the kubelet's managers assign them exclusively, and
// their containers are known.
func addManaged(node *v1alpha1.NUMANode, f facts.Facts, n facts.NUMANode) {
	if _, unknown := f.CPUs.Get(); unknown == nil {
		node.CPUs = v1alpha1.Set(n.CPUs.String())
		for _, core := range n.Cores {
			node.Cores = append(node.Cores, v1alpha1.Set(core.String()))
		}
		if n.Socket >= 0 && n.Socket != n.Number {
			node.Socket = new(n.Socket)
		}
	}
	memory, unknown := f.Memory.Get()
	if machine := memory.Machine[strconv.Itoa(n.Number)]; unknown == nil && len(machine.Memory) > 0 {
		node.Memory = map[string]v1alpha1.Memory{}
		for kind, m := range machine.Memory {
			node.Memory[kind] = v1alpha1.Memory{
				Total: m.Total, SystemReserved: m.SystemReserved, Allocatable: m.Allocatable,
			}
		}
	}
}

// memoryReserved returns the memory of NUMA nodes that containers hold.
func memoryReserved(f facts.Facts) []v1alpha1.MemoryReserved {
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

// held returns the devices, CPUs and memory of pods. Devices without an announcement have no number and are
// omitted. A container with only such devices is listed without devices, and so does not count as on the way
// to the node.
func held(f facts.Facts, n numbered) []v1alpha1.Held {
	pods := map[string]map[string]*v1alpha1.Container{}
	of := func(c facts.Container) *v1alpha1.Container {
		if pods[c.PodUID] == nil {
			pods[c.PodUID] = map[string]*v1alpha1.Container{}
		}
		if pods[c.PodUID][c.Name] == nil {
			pods[c.PodUID][c.Name] = &v1alpha1.Container{Name: c.Name}
		}
		return pods[c.PodUID][c.Name]
	}
	for _, h := range f.Devices {
		devices, ours := set{}, false
		for resource, ids := range h.Devices {
			ours = ours || n.of[resource] != nil
			for _, id := range ids {
				if number, known := n.of[resource][id]; known {
					devices.add(resource, number)
				}
			}
		}
		if ours {
			of(h.Container).Devices = devices.sets()
		}
	}
	if state, unknown := f.CPUs.Get(); unknown == nil {
		for uid, containers := range state.Entries {
			for name, cpus := range containers {
				of(facts.Container{PodUID: uid, Name: name}).CPUs = v1alpha1.Set(cpus)
			}
		}
	}
	if state, unknown := f.Memory.Get(); unknown == nil {
		for uid, containers := range state.Entries {
			for name, blocks := range containers {
				of(facts.Container{PodUID: uid, Name: name}).Memory = memory(blocks)
			}
		}
	}
	return ordered(pods)
}

func memory(blocks []kubelet.MemoryBlock) []v1alpha1.MemoryBlock {
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

func ordered(pods map[string]map[string]*v1alpha1.Container) []v1alpha1.Held {
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

// summary counts the most important values for people.
func summary(s v1alpha1.Spec, gone facts.Gone) v1alpha1.Summary {
	free, kinds := Free(s, gone), map[string]v1alpha1.Kind{}
	healthy, left := map[v1alpha1.Kind]int{}, map[v1alpha1.Kind]int{}
	for _, r := range s.Resources {
		kinds[r.Name] = r.Kind
		healthy[r.Kind] += r.Devices - len(r.Unhealthy.Numbers())
		left[r.Kind] += len(free[r.Name])
	}
	var counts v1alpha1.Summary
	for _, on := range s.Switches {
		has, spare := map[v1alpha1.Kind]int{}, map[v1alpha1.Kind]int{}
		for name, devices := range on.Devices {
			for _, number := range devices.Numbers() {
				has[kinds[name]]++
				if free[name][number] {
					spare[kinds[name]]++
				}
			}
		}
		if on.Alone || has[v1alpha1.GPU] == 0 || has[v1alpha1.VF] == 0 {
			continue
		}
		counts.Switches++
		counts.FreePairs += min(spare[v1alpha1.GPU], spare[v1alpha1.VF])
	}
	counts.GPUs = fmt.Sprintf("%d/%d", left[v1alpha1.GPU], healthy[v1alpha1.GPU])
	counts.VFs = fmt.Sprintf("%d/%d", left[v1alpha1.VF], healthy[v1alpha1.VF])
	return counts
}
