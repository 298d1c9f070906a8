// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyObject implements runtime.Object.
func (t *NodeTopology) DeepCopyObject() runtime.Object { return t.DeepCopy() }

// DeepCopy returns a deep copy.
func (t *NodeTopology) DeepCopy() *NodeTopology {
	c := &NodeTopology{TypeMeta: t.TypeMeta, Spec: *t.Spec.DeepCopy()}
	t.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return c
}

// DeepCopyObject implements runtime.Object.
func (l *NodeTopologyList) DeepCopyObject() runtime.Object {
	c := &NodeTopologyList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = each(l.Items, func(t *NodeTopology) { *t = *t.DeepCopy() })
	return c
}

// DeepCopy returns a deep copy.
func (s *Spec) DeepCopy() *Spec {
	c := *s
	c.Kubelet.TopologyManagerPolicyOptions = maps.Clone(s.Kubelet.TopologyManagerPolicyOptions)
	c.Kubelet.CPUManagerPolicyOptions = maps.Clone(s.Kubelet.CPUManagerPolicyOptions)
	c.Resources = each(s.Resources, func(r *Resource) {
		r.Hints, r.Functions = maps.Clone(r.Hints), slices.Clone(r.Functions)
		r.Addresses = slices.Clone(r.Addresses)
	})
	c.Switches = each(s.Switches, func(s *Switch) {
		s.Devices = maps.Clone(s.Devices)
		if s.NUMA != nil {
			s.NUMA = new(*s.NUMA)
		}
		s.Below = each(s.Below, func(b *Below) { b.Devices = maps.Clone(b.Devices) })
	})
	c.NUMANodes = each(s.NUMANodes, func(n *NUMANode) {
		n.Distances, n.Memory, n.Cores = slices.Clone(n.Distances), maps.Clone(n.Memory), slices.Clone(n.Cores)
		if n.Socket != nil {
			n.Socket = new(*n.Socket)
		}
	})
	c.Links = slices.Clone(s.Links)
	c.Held = each(s.Held, func(h *Held) {
		h.Containers = each(h.Containers, func(c *Container) {
			c.Devices, c.Memory = maps.Clone(c.Devices), slices.Clone(c.Memory)
		})
	})
	c.MemoryReserved = each(s.MemoryReserved, func(r *MemoryReserved) { r.Memory = maps.Clone(r.Memory) })
	return &c
}

// each returns a copy of a list, with deepen applied to each element.
func each[T any](list []T, deepen func(*T)) []T {
	c := slices.Clone(list)
	for i := range c {
		deepen(&c[i])
	}
	return c
}
