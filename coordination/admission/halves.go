// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/resources"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// resourceHalf is the half of a request for a resource.
type resourceHalf struct {
	resource *resources.Resource
	half     placement.Half
}

// offer is the choice left by the kubelet.
type offer struct {
	must []string // required devices
	free []string
	held []string // offered devices with a different holder
}

// newOffer sorts the available devices of a question. The kubelet offers a device with a holder if about to
// hand the device out twice (kubernetes PR 137534), or after losing its records. Such a device is chosen only
// if the rest is too few.
func newOffer(b *books, q asking.Question, c *asking.Container) offer {
	o := offer{must: q.MustInclude}
	for _, id := range q.Available {
		switch {
		case slices.Contains(q.MustInclude, id):
		case b.isFree(q.Resource, id) || c.Has(q.Resource, id):
			o.free = append(o.free, id)
		default:
			o.held = append(o.held, id)
		}
	}
	if len(o.must)+len(o.free) < q.Size {
		o.must, o.free = slices.Concat(o.must, o.free), o.held
	}
	return o
}

// half returns the half for the question's resource.
func (o offer) half(r *resources.Resource, size int) placement.Half {
	half := placement.Half{Count: size}
	for _, id := range o.must {
		half.Held = append(half.Held, r.Device(id).Placed())
	}
	for _, id := range r.Permit(o.must, o.free, size) {
		half.Free = append(half.Free, r.Device(id).Placed())
	}
	return half
}

// permitted returns the free devices of a resource that the kubelet will offer on NUMA nodes and the rule for
// shared devices permits.
func (b *books) permitted(
	r *resources.Resource, nodes map[int]bool, held []placement.Device, size int,
) (permitted []placement.Device) {
	free := idsOf(b.freeOn(r, nodes))
	for _, id := range r.Permit(idsOf(held), free, size) {
		permitted = append(permitted, r.Device(id).Placed())
	}
	return permitted
}

func idsOf(devices []placement.Device) (ids []string) {
	for _, d := range devices {
		ids = append(ids, d.ID)
	}
	return ids
}

// ownDevices returns the devices of a resource allocated to a container or, without any, inherited from init
// containers.
func ownDevices(c *asking.Container, r *resources.Resource) (all []placement.Device) {
	ids := c.Devices[r.Name]
	if len(ids) == 0 {
		ids = c.Inherits[r.Name]
	}
	for _, id := range ids {
		all = append(all, r.Device(id).Placed())
	}
	return all
}
