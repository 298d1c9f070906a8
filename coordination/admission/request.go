package admission

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/asking"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/ledger"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// request puts a question to placement: all that the container wants, where a source of intent tells; else
// the half that is asked, and the other half, given to the container before or as it will most likely be
// asked for. The remark is for people.
func (d *deciding) request(
	r *ledger.Resource, usable offer, q asking.Question, holder *ledger.Allocation, a *asking.Asker,
) (placement.Request, string) {
	l := d.ledger
	var request placement.Request
	var remark string
	if a != nil {
		all := d.wantedBy(a, r, usable, q, holder)
		remark = d.honour(a, all)
		for _, w := range all {
			w.resource.Kind.AddTo(&request, w.half)
		}
	} else {
		asked := d.askedHalf(r, usable, q, holder)
		r.Kind.AddTo(&request, asked)
		r.Kind.Other().AddTo(&request, d.otherHalf(r, q, asked, holder))
	}
	for _, gpus := range l.OfKind(device.GPU) {
		request.Links = append(request.Links, gpus.Links...)
	}
	request.Spare.GPUs, request.Taken.GPUs = l.Beside(device.GPU, holder)
	request.Spare.VFs, request.Taken.VFs = l.Beside(device.VF, holder)
	return request, remark
}

// askedHalf is the half of the question: what must be in it, what the container has of the same kind under
// other resource names (VFs of other rails), and what can be chosen.
func (d *deciding) askedHalf(
	r *ledger.Resource, usable offer, q asking.Question, holder *ledger.Allocation,
) placement.Half {
	half := offeredHalf(r, usable, q.Size)
	for _, held := range d.ledger.Held(holder, r.Kind) {
		if _, same := holder.Devices[r.Name][held.ID]; !same {
			half.Held = append(half.Held, held.Placed())
			half.Count++
		}
	}
	return half
}

// otherHalf is what the container has of the other kind. Where it has nothing yet, or is taking over from an
// init container, as many as are asked for now are planned: pairs are the common request.
func (d *deciding) otherHalf(
	r *ledger.Resource, q asking.Question, asked placement.Half, holder *ledger.Allocation,
) placement.Half {
	kind := r.Kind.Other()
	half := device.All(d.ledger.Held(holder, kind))
	if half.Count > 0 && len(q.MustInclude) == 0 {
		return half
	}
	half.Free = d.expected(kind, q, asked.Count-half.Count)
	half.Count = max(half.Count, min(asked.Count, half.Count+len(half.Free)))
	return half
}

// expected lists the free devices of a kind that the kubelet will offer the container that asks now.
func (d *deciding) expected(kind device.Kind, q asking.Question, count int) []placement.Device {
	l := d.ledger
	of := l.OfKind(kind)
	nodes, admitted := d.nodesOf(q, func() (hints.Mask, bool) {
		return hints.Restricted.Nodes(l.Demand(count, of...))
	})
	if !admitted {
		return nil
	}
	var free []placement.Device
	for _, other := range of {
		free = append(free, l.FreeOn(other, nodes)...)
	}
	return free
}

// inPairOrder orders what a container was given of a resource so that its i-th GPU pairs with its i-th VF:
// GPUs by address, as the vendors' runtimes enumerate them, VFs by the GPU they serve. If a question
// preceded, the plan has the order. If the kubelet asked for nothing, the GPUs are those of the allocation
// before, or the nearest: it will most likely give them next.
func (d *deciding) inPairOrder(g grant, before *ledger.Allocation) []string {
	r, ids := d.ledger.Resource(g.name), g.ids
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
			GPUs: []placement.Half{d.gpusBeside(r, ids, g.holder, before)}, VFs: []placement.Half{taken},
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
func (d *deciding) gpusBeside(r *ledger.Resource, ids []string, a, before *ledger.Allocation) placement.Half {
	l := d.ledger
	held := l.LatestOf(a, device.GPU)
	if len(held) == 0 {
		held = l.LatestOf(before, device.GPU)
	}
	half := device.All(held)
	free, taken := l.OnNodes(device.GPU, l.Nodes(r.Name, ids))
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

// usable returns what may be chosen of the available IDs. What no living container has comes first. What the
// kubelet offers is free, whatever we thought, unless PodResources shows at this moment that a container has
// it: then the kubelet is about to hand it out twice (kubernetes PR 137534). What PodResources shows with
// nobody is of a pod that is gone: the kubelet frees all of a pod's devices at once. Of the asking container
// itself, the holder, one device goes back alone, and so it does of a container that Get shows to live. While
// PodResources tells nothing of the owner the kubelet may be right or wrong: what we have with somebody
// counts as free for others, unless the kubelet's own list has the pod, but is chosen only where the rest is
// too few, and keeps its holder until its Allocate, when that is asked for (refusal.go).
func (d *deciding) usable(q asking.Question, now seen, holder *ledger.Allocation) offer {
	l, view := d.ledger, now.view
	o := offer{must: q.MustInclude}
	var held []string
	for _, id := range q.Available {
		a := l.Holder(q.Resource, id)
		switch {
		case slices.Contains(q.MustInclude, id):
			continue
		case a == nil:
		case view != nil && a.Owner != nil && slices.Contains(view.Containers[*a.Owner][q.Resource], id),
			slices.Contains(now.living[a.ID][q.Resource], id):
			d.warn("kubelet offers a device that is in use", "resource", q.Resource, "device", id, "owner",
				a.OwnerName())
			held = append(held, id)
			continue
		case view == nil && a != holder && now.living[a.ID] == nil:
			a.Doubtful = !now.lives(a)
			held = append(held, id)
			continue
		case view == nil || a.Owner != nil:
			l.Release(q.Resource, id)
		default:
			l.Drop(a)
		}
		o.free = append(o.free, id)
	}
	if len(o.must)+len(o.free) < q.Size {
		o.must, o.free = slices.Concat(o.must, o.free), held
	}
	return o
}
