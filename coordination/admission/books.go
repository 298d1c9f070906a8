// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// books are the announced devices with PCI tree and holders, at one moment.
type books struct {
	tree      *topology.Tree
	resources device.Resources
	holders   *holders.Units
}

// newBooks returns the books of holders.
func newBooks(tree *topology.Tree, set device.Resources, found holders.Holders) *books {
	return &books{tree, set, found.ByUnit(set.UnitOf)}
}

// hasRules reports whether a resource has a rule for shared devices.
func (b *books) hasRules() bool {
	for _, r := range b.resources {
		if r.Replicas != "" {
			return true
		}
	}
	return false
}

// withoutRules returns the books without the rules for shared devices.
func (b *books) withoutRules() *books {
	all := maps.Clone(b.resources)
	for name, r := range all {
		free := *r
		free.Replicas = ""
		all[name] = &free
	}
	return &books{b.tree, all, b.holders}
}

// isFree reports whether a device has no holder, under no name.
func (b *books) isFree(resource, id string) bool { return b.holders.Of(resource, id) == nil }

// failedFunctions returns the functions of failed devices, which the kubelet offers to nobody, in order.
func (b *books) failedFunctions() (functions []topology.Address) {
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

// spareAndTaken returns all free devices of a kind, and all devices held by different containers, each once.
func (b *books) spareAndTaken(kind device.Kind, c *recipient) (spare, taken []placement.Device) {
	seen := map[topology.Unit]bool{}
	for _, r := range b.resources.OfKind(kind) {
		for _, d := range r.Ordered() {
			switch {
			case b.isFree(r.Name, d.ID):
				if d.Healthy {
					spare = append(spare, d.Placed())
				}
			case !c.Has(r.Name, d.ID) && !seen[d.Unit]:
				taken, seen[d.Unit] = append(taken, d.Placed()), !d.Unit.Shared
			}
		}
	}
	return spare, taken
}

// demand returns a number of devices of resources as a demand of the Topology Manager. For the kubelet the
// devices of containers of which it has lost the records are free.
func (b *books) demand(count int, of ...*device.Resource) model.Demand {
	demand := model.Demand{Count: count}
	for _, r := range of {
		for _, d := range r.Ordered() {
			demand.All.Add(d.NUMA)
			if h := b.holders.Of(r.Name, d.ID); d.Healthy && (h == nil || h.Lost) {
				demand.Free.Add(d.NUMA)
			}
		}
	}
	return demand
}

// ownerName returns the name of a holder, for people.
func ownerName(h *holders.Holder) string {
	switch {
	case h.Pod != (kubelet.Pod{}) && h.Name != "":
		return h.Container().String()
	case h.Pod != (kubelet.Pod{}):
		return "a container of " + h.Pod.Namespace + "/" + h.Pod.Name
	case h.Name != "":
		return "container " + h.Name + " of the pod with UID " + h.UID
	default:
		return "an init container"
	}
}

// resourceHalf is the half of a request for a resource.
type resourceHalf struct {
	resource *device.Resource
	half     placement.Half
}

// offer is the choice left by the kubelet.
type offer struct {
	must  []string // required devices
	free  []string
	inUse []string // offered devices with a different holder
}

// newOffer sorts the available devices of a question. The kubelet offers a device with a holder if about to
// hand the device out twice (kubernetes PR 137534), or after losing its records. Such a device is chosen only
// if the rest is too few.
func newOffer(b *books, q *api.PreferRequest, c *recipient) offer {
	o := offer{must: q.GetMustInclude()}
	for _, id := range q.GetAvailable() {
		switch {
		case slices.Contains(q.GetMustInclude(), id):
		case b.isFree(q.GetResource(), id) || c.Has(q.GetResource(), id):
			o.free = append(o.free, id)
		default:
			o.inUse = append(o.inUse, id)
		}
	}
	if len(o.must)+len(o.free) < int(q.GetSize()) {
		o.must, o.free = slices.Concat(o.must, o.free), o.inUse
	}
	return o
}

// half returns the half for the question's resource.
func (o offer) half(r *device.Resource, size int) placement.Half {
	return placement.Half{Count: size, Held: r.Placed(o.must), Free: r.Placed(r.Permit(o.must, o.free, size))}
}

// permitted returns the free devices of a resource that the kubelet will offer on NUMA nodes and the rule for
// shared devices permits to a container that has devices.
func (b *books) permitted(r *device.Resource, nodes map[int]bool, has []string, size int) []placement.Device {
	var free []string
	for _, d := range r.Ordered() {
		if d.Healthy && b.isFree(r.Name, d.ID) && isOn(d, nodes) {
			free = append(free, d.ID)
		}
	}
	return r.Placed(r.Permit(has, free, size))
}
