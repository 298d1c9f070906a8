package admission

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/resources"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// books are the devices that plugins have announced, with those who hold them, at one moment.
type books struct {
	resources resources.Set
	found     holders.Holders
	holders   map[string]map[string]int // resource → device ID → its holder's place in found
}

func newBooks(set resources.Set, found holders.Holders) *books {
	b := &books{set, found, map[string]map[string]int{}}
	for i, h := range found {
		for name, ids := range h.Devices {
			if b.holders[name] == nil {
				b.holders[name] = map[string]int{}
			}
			for _, id := range ids {
				// an app container's is what an init container of the pod leaves to it
				if _, held := b.holders[name][id]; !held || !h.Init {
					b.holders[name][id] = i
				}
			}
		}
	}
	return b
}

// holder is who has a device, nil for nobody.
func (b *books) holder(name, id string) *holders.Holder {
	if i, held := b.holders[name][id]; held {
		return &b.found[i]
	}
	return nil
}

func (b *books) isFree(name, id string) bool {
	_, held := b.holders[name][id]
	return !held
}

// free lists a resource's healthy devices that nobody holds, by address and ID.
func (b *books) free(r *resources.Resource) (free []device.Device) {
	for _, d := range r.Ordered() {
		if d.Healthy && b.isFree(r.Name, d.ID) {
			free = append(free, d)
		}
	}
	return free
}

// freeOn lists the free devices of a resource on NUMA nodes, those of unknown node included; all where there
// are no nodes.
func (b *books) freeOn(r *resources.Resource, nodes map[int]bool) (free []placement.Device) {
	for _, d := range b.free(r) {
		if on(d, nodes) {
			free = append(free, d.Placed())
		}
	}
	return free
}

// on reports whether a device can be on one of some NUMA nodes. No nodes are all.
func on(d device.Device, nodes map[int]bool) bool {
	n, known := d.NUMA.Number()
	return !known || len(nodes) == 0 || nodes[n]
}

// onNodes lists the healthy devices of a kind on NUMA nodes, free ones and others; on all where there are no
// nodes.
func (b *books) onNodes(kind device.Kind, nodes map[int]bool) (free, taken []placement.Device) {
	for _, r := range b.resources.OfKind(kind) {
		for _, d := range r.Ordered() {
			switch {
			case !d.Healthy || !on(d, nodes):
			case b.isFree(r.Name, d.ID):
				free = append(free, d.Placed())
			default:
				taken = append(taken, d.Placed())
			}
		}
	}
	return free, taken
}

// beside lists all devices of a kind that are free, and all that others than a container have.
func (b *books) beside(kind device.Kind, c *asking.Container) (spare, taken []placement.Device) {
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

// demand is a number of devices of some resources as the Topology Manager looks at it.
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

// ownerName names who holds something, for people.
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

// names lists who holds some devices but for a container, for people.
func (b *books) names(name string, ids []string, c *asking.Container) (owners []string) {
	for _, id := range ids {
		if h := b.holder(name, id); h != nil && !c.Has(name, id) {
			owners = append(owners, ownerName(h))
		}
	}
	slices.Sort(owners)
	return slices.Compact(owners)
}
