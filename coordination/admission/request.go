package admission

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/resources"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// request puts a question to placement: all that the container wants, where a source of intent tells; else
// the half that is asked, and the other half, given to the container before or as it will most likely be
// asked for. The remark is for people.
func (d *deciding) request(
	r *resources.Resource, usable offer, q asking.Question, c *asking.Container,
) (placement.Request, string) {
	var request placement.Request
	var remark string
	if c.Asker != nil {
		all := d.wantedBy(c, r, usable, q)
		remark = d.honour(c.Asker, all)
		for _, w := range all {
			w.resource.Kind.AddTo(&request, w.half)
		}
	} else {
		asked := d.askedHalf(r, usable, q, c)
		r.Kind.AddTo(&request, asked)
		r.Kind.Other().AddTo(&request, d.otherHalf(r, q, asked, c))
	}
	for _, gpus := range d.resources.OfKind(device.GPU) {
		request.Links = append(request.Links, gpus.Links...)
	}
	request.Spare.GPUs, request.Taken.GPUs = d.books().beside(device.GPU, c)
	request.Spare.VFs, request.Taken.VFs = d.books().beside(device.VF, c)
	return request, remark
}

// askedHalf is the half of the question: what must be in it, what the container has of the same kind under
// other resource names (VFs of other rails), and what can be chosen.
func (d *deciding) askedHalf(
	r *resources.Resource, usable offer, q asking.Question, c *asking.Container,
) placement.Half {
	half := offeredHalf(r, usable, q.Size)
	for _, of := range d.resources.OfKind(r.Kind) {
		if of != r {
			held := device.All(of.Select(c.Devices[of.Name]))
			half.Held, half.Count = append(half.Held, held.Held...), half.Count+held.Count
		}
	}
	return half
}

// otherHalf is what the container has of the other kind. Where it has nothing yet, or is taking over from an
// init container, as many as are asked for now are planned: pairs are the common request.
func (d *deciding) otherHalf(
	r *resources.Resource, q asking.Question, asked placement.Half, c *asking.Container,
) placement.Half {
	kind := r.Kind.Other()
	held := d.resources.Held(c.Devices, kind)
	if len(held) > 0 {
		return device.All(held)
	}
	half := device.All(d.resources.Held(c.Inherits, kind))
	half.Free = d.expected(kind, q, asked.Count-half.Count)
	half.Count = max(half.Count, min(asked.Count, half.Count+len(half.Free)))
	return half
}

// expected lists the free devices of a kind that the kubelet will offer the container that asks now.
func (d *deciding) expected(kind device.Kind, q asking.Question, count int) []placement.Device {
	of := d.resources.OfKind(kind)
	nodes, admitted := d.nodesOf(q, func() (hints.Mask, bool) {
		return d.rule().Nodes(d.books().demand(count, of...))
	})
	if !admitted {
		return nil
	}
	var free []placement.Device
	for _, other := range of {
		free = append(free, d.books().freeOn(other, nodes)...)
	}
	return free
}

// rule is the policy by which the kubelet chooses NUMA nodes. Where it is not known it is the one that the
// documents ask for, and nobody is refused by it (misaligned).
func (d *deciding) rule() hints.Policy {
	if d.policy == "" {
		return hints.Restricted
	}
	return d.policy
}

// inPairOrder orders what a container was given of a resource so that its i-th GPU pairs with its i-th VF:
// GPUs by address, as the vendors' runtimes enumerate them, VFs by the GPU they serve. If a question
// preceded, the plan has the order. If the kubelet asked for nothing, the GPUs are those of the container
// before, or the nearest: it will most likely give them next.
func (d *deciding) inPairOrder(g grant, before *asking.Container) []string {
	r, ids := d.resources[g.name], g.ids
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
			GPUs: []placement.Half{d.gpusBeside(r, ids, g.container, before)}, VFs: []placement.Half{taken},
		}
	}
	choice, err := placement.Choose(d.tree, request)
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

// gpusBeside are the GPUs that VFs given without a question most likely serve: those of their container, as
// far as they are known, then those that are free on the VFs' NUMA nodes, then the others there. Nothing was
// read just now, so that what was given last to a container that is gone still counts as held.
func (d *deciding) gpusBeside(
	r *resources.Resource, ids []string, c, before *asking.Container,
) placement.Half {
	held := d.resources.Held(c.Devices, device.GPU)
	if len(held) == 0 && before != nil {
		held = d.resources.Held(before.Devices, device.GPU)
	}
	half := device.All(held)
	free, taken := d.books().onNodes(device.GPU, d.resources.Nodes(r.Name, ids))
	if len(half.Held)+len(free) < len(ids) {
		half.Held, free = append(half.Held, free...), taken
	}
	half.Free = slices.DeleteFunc(free, func(d placement.Device) bool { return slices.Contains(half.Held, d) })
	half.Count = max(len(half.Held), min(len(ids), len(half.Held)+len(half.Free)))
	return half
}

// offer is what the kubelet lets us choose from.
type offer struct {
	must []string // these have to be chosen
	free []string
}

// usable returns what may be chosen of the available IDs. A device that somebody holds, by the kubelet's own
// records, is offered where the kubelet is about to hand it out twice (kubernetes PR 137534), or has lost
// sight of it: it is chosen only where the rest is too few.
func (d *deciding) usable(q asking.Question, c *asking.Container) offer {
	o := offer{must: q.MustInclude}
	var held []string
	for _, id := range q.Available {
		h := d.books().holder(q.Resource, id)
		switch {
		case slices.Contains(q.MustInclude, id):
		case h == nil || c.Has(q.Resource, id):
			o.free = append(o.free, id)
		default:
			d.warn("kubelet offers a device that is in use", "resource", q.Resource, "device", id, "owner",
				ownerName(h))
			held = append(held, id)
		}
	}
	if len(o.must)+len(o.free) < q.Size {
		o.must, o.free = slices.Concat(o.must, o.free), held
	}
	return o
}
