// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/resources"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// books are the announced devices with PCI tree and holders, at one moment.
type books struct {
	tree      *topology.Tree
	resources resources.Set
	found     holders.Holders
	holders   map[string]map[string]int // resource → device ID → index of the holder in found
}

// newBooks indexes holders by device. An app container takes precedence over init containers of its pod.
func newBooks(tree *topology.Tree, set resources.Set, found holders.Holders) *books {
	b := &books{tree, set, found, map[string]map[string]int{}}
	for i, h := range found {
		for name, ids := range h.Devices {
			if b.holders[name] == nil {
				b.holders[name] = map[string]int{}
			}
			for _, id := range ids {
				if _, held := b.holders[name][id]; !held || !h.Init {
					b.holders[name][id] = i
				}
			}
		}
	}
	return b
}

// holder returns the holder of a device, nil for none.
func (b *books) holder(name, id string) *holders.Holder {
	if i, held := b.holders[name][id]; held {
		return &b.found[i]
	}
	return nil
}

// isFree reports whether a device has no holder.
func (b *books) isFree(name, id string) bool {
	_, held := b.holders[name][id]
	return !held
}

// failed returns the functions of failed devices, which the kubelet offers to nobody, in order.
func (b *books) failed() (functions []topology.Address) {
	for _, r := range b.resources {
		for _, d := range r.Devices {
			if d.Healthy || d.Reason == "" {
				continue
			}
			if of, known := b.tree.Device(d.Address); known {
				functions = append(functions, of.Function())
			} else {
				functions = append(functions, d.Address)
			}
		}
	}
	slices.SortFunc(functions, topology.Address.Compare)
	return slices.Compact(functions)
}

// free returns the healthy devices of a resource without a holder, ordered by address and ID.
func (b *books) free(r *resources.Resource) (free []device.Device) {
	for _, d := range r.Ordered() {
		if d.Healthy && b.isFree(r.Name, d.ID) {
			free = append(free, d)
		}
	}
	return free
}

// freeOn returns the free devices of a resource on NUMA nodes, including devices of unknown node. An empty
// set of nodes means all nodes.
func (b *books) freeOn(r *resources.Resource, nodes map[int]bool) (free []placement.Device) {
	for _, d := range b.free(r) {
		if isOn(d, nodes) {
			free = append(free, d.Placed())
		}
	}
	return free
}

// isOn reports whether a device can be on one of several NUMA nodes. An empty set means all nodes.
func isOn(d device.Device, nodes map[int]bool) bool {
	n, known := d.NUMA.Number()
	return !known || len(nodes) == 0 || nodes[n]
}

// onNodes returns the healthy devices of a kind on NUMA nodes, free and held. An empty set means all nodes.
func (b *books) onNodes(kind device.Kind, nodes map[int]bool) (free, taken []placement.Device) {
	for _, r := range b.resources.OfKind(kind) {
		for _, d := range r.Ordered() {
			switch {
			case !d.Healthy || !isOn(d, nodes):
			case b.isFree(r.Name, d.ID):
				free = append(free, d.Placed())
			default:
				taken = append(taken, d.Placed())
			}
		}
	}
	return free, taken
}

// spareAndTaken returns all free devices of a kind, and all devices held by different containers.
func (b *books) spareAndTaken(kind device.Kind, c *asking.Container) (spare, taken []placement.Device) {
	for _, r := range b.resources.OfKind(kind) {
		for _, d := range b.free(r) {
			spare = append(spare, d.Placed())
		}
		for id := range b.holders[r.Name] {
			if !c.Has(r.Name, id) {
				taken = append(taken, r.Device(id).Placed())
			}
		}
	}
	return spare, taken
}

// demand returns a number of devices of resources as a demand of the Topology Manager.
func (b *books) demand(count int, of ...*resources.Resource) hints.Demand {
	demand := hints.Demand{Count: count}
	for _, r := range of {
		for _, d := range r.Ordered() {
			demand.All.Add(d.NUMA)
		}
		for _, d := range b.free(r) {
			demand.Free.Add(d.NUMA)
		}
	}
	return demand
}

// manyNodes reports whether more NUMA nodes have devices than the Topology Manager supports by default.
func (b *books) manyNodes() bool { return hints.Rule{}.TooMany(b.demand(1, b.resources.All()...)) }

// ownerName returns the name of a holder, for people.
func ownerName(h *holders.Holder) string {
	switch {
	case h.Pod != (kubelet.Pod{}) && h.Name != "":
		return kubelet.Container{Pod: h.Pod, Name: h.Name}.String()
	case h.Pod != (kubelet.Pod{}):
		return "a container of " + h.Pod.Namespace + "/" + h.Pod.Name
	case h.Name != "":
		return "container " + h.Name + " of the pod with UID " + h.UID
	default:
		return "an init container"
	}
}

// names returns the names of the holders of devices, without a container's own, for people.
func (b *books) names(name string, ids []string, c *asking.Container) (owners []string) {
	for _, id := range ids {
		if h := b.holder(name, id); h != nil && !c.Has(name, id) {
			owners = append(owners, ownerName(h))
		}
	}
	slices.Sort(owners)
	return slices.Compact(owners)
}
