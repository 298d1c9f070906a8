// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/resources"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// orderDevices returns the allocated devices of a resource in pair order: the i-th GPU pairs with the i-th
// VF. GPUs are ordered by address, like the vendors' runtimes; VFs by their GPUs. After a question, the plan
// has the order. Without a question, the GPUs are the container's, or the nearest GPUs: the kubelet most
// likely allocates them next.
func orderDevices(b *books, g grant) []string {
	r, ids := b.resources[g.name], g.ids
	switch {
	case r == nil:
		return slices.Sorted(slices.Values(ids))
	case r.Kind == device.VF && device.SameSet(g.planned, ids):
		return slices.Clone(g.planned)
	}
	taken := device.All(r.Select(ids))
	request := placement.Request{GPUs: []placement.Half{taken}}
	if r.Kind == device.VF {
		request = placement.Request{
			GPUs: []placement.Half{gpusBeside(b, r, ids, g.container)}, VFs: []placement.Half{taken},
		}
	}
	choice, err := placement.Choose(b.tree, request)
	if err != nil {
		return slices.Sorted(slices.Values(ids))
	}
	var ordered []string
	for _, d := range slices.Concat(choice.GPUs, choice.VFs) {
		if slices.Contains(ids, d.ID) {
			ordered = append(ordered, d.ID)
		}
	}
	return ordered
}

// gpusBeside returns the most likely GPUs for VFs allocated without a question: known GPUs of the container,
// then free GPUs on the NUMA nodes of the VFs, then held GPUs there. The kubelet was not read just now,
// therefore devices of an ended container can still count as held.
func gpusBeside(b *books, r *resources.Resource, ids []string, c *asking.Container) placement.Half {
	half := device.All(b.resources.Held(c.Devices, device.GPU))
	free, taken := b.onNodes(device.GPU, b.resources.Nodes(r.Name, ids))
	if len(half.Held)+len(free) < len(ids) {
		half.Held, free = append(half.Held, free...), taken
	}
	half.Free = slices.DeleteFunc(free, func(d placement.Device) bool { return slices.Contains(half.Held, d) })
	half.Count = max(len(half.Held), min(len(ids), len(half.Held)+len(half.Free)))
	return half
}
