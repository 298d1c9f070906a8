package admission

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// request puts a question to placement: all that the container wants, where a source of intent tells; else
// the half that is asked, and the other half, given to the container before or as it will most likely be
// asked for. The remark is for people.
func (d *deciding) request(
	r *resource, usable offer, q question, holder *allocation, a *asker,
) (placement.Request, string) {
	l := d.ledger
	var request placement.Request
	var remark string
	if a != nil {
		all := d.wantedBy(a, r, usable, q, holder)
		remark = l.honour(a, all)
		for _, w := range all {
			w.resource.kind.AddTo(&request, w.half)
		}
	} else {
		asked := l.askedHalf(r, usable, q, holder)
		r.kind.AddTo(&request, asked)
		r.kind.Other().AddTo(&request, l.otherHalf(r, q, asked, holder))
	}
	for _, gpus := range l.ofKind(device.GPU) {
		request.Links = append(request.Links, gpus.links...)
	}
	request.Spare.GPUs, request.Taken.GPUs = l.beside(device.GPU, holder)
	request.Spare.VFs, request.Taken.VFs = l.beside(device.VF, holder)
	return request, remark
}

// beside lists all devices of a kind that are free, and all that other containers have.
func (l *ledger) beside(kind device.Kind, holder *allocation) (spare, taken []placement.Device) {
	for _, r := range l.ofKind(kind) {
		for _, d := range l.free(r) {
			spare = append(spare, d.Placed())
		}
		for id, a := range l.holders[r.name] {
			if a != holder && !a.doubtful {
				taken = append(taken, r.device(id).Placed())
			}
		}
	}
	return spare, taken
}

// askedHalf is the half of the question: what must be in it, what the container has of the same kind under
// other resource names (VFs of other rails), and what can be chosen.
func (l *ledger) askedHalf(r *resource, usable offer, q question, holder *allocation) placement.Half {
	half := offeredHalf(r, usable, q.size)
	for _, d := range l.heldOfKind(holder, r.kind) {
		if _, same := holder.devices[r.name][d.ID]; !same {
			half.Held = append(half.Held, d.Placed())
			half.Count++
		}
	}
	return half
}

// otherHalf is what the container has of the other kind. Where it has nothing yet, or is taking over from an
// init container, as many as are asked for now are planned: pairs are the common request.
func (l *ledger) otherHalf(r *resource, q question, asked placement.Half, holder *allocation) placement.Half {
	kind := r.kind.Other()
	half := device.All(l.heldOfKind(holder, kind))
	if half.Count > 0 && len(q.mustInclude) == 0 {
		return half
	}
	half.Free = l.expected(kind, q, asked.Count-half.Count)
	half.Count = max(half.Count, min(asked.Count, half.Count+len(half.Free)))
	return half
}

// expected lists the free devices of a kind that the kubelet will offer the container that asks now.
func (l *ledger) expected(kind device.Kind, q question, count int) []placement.Device {
	of := l.ofKind(kind)
	nodes, admitted := l.nodesOf(q, func() (hints.Mask, bool) {
		return hints.Restricted.Nodes(l.demand(count, of...))
	})
	if !admitted {
		return nil
	}
	var free []placement.Device
	for _, other := range of {
		free = append(free, l.freeOn(other, nodes)...)
	}
	return free
}

// newPlan keeps a choice: the answer to the question, and what is left for the other resources of the
// request.
func (l *ledger) newPlan(
	choice placement.Choice, r *resource, q question, holder *allocation, a *asker,
) *plan {
	p := &plan{
		devices: map[string][]string{},
		holder:  holder,
		asker:   a,
		pairs:   choice.Pairs,
		after:   l.sequence,
		expires: l.now().Add(planTTL),
	}
	offered := map[string]bool{}
	for _, id := range slices.Concat(q.available, q.mustInclude) {
		offered[id] = true
	}
	for _, d := range slices.Concat(choice.GPUs, choice.VFs) {
		name := r.name
		if !offered[d.ID] {
			name = l.resourceOf(d.ID, r.name)
		}
		if name != "" {
			p.devices[name] = append(p.devices[name], d.ID)
		}
	}
	maps.DeleteFunc(p.devices, func(name string, ids []string) bool {
		return name != r.name && !slices.ContainsFunc(ids, func(id string) bool {
			return l.holders[name][id] != holder
		})
	})
	return p
}

// resourceOf finds the resource that a device ID belongs to, other than one; IDs are unique on a node.
func (l *ledger) resourceOf(id, other string) string {
	for _, name := range slices.Sorted(maps.Keys(l.resources)) {
		if _, ok := l.resources[name].devices[id]; ok && name != other {
			return name
		}
	}
	return ""
}

// inPairOrder orders what a container was given of a resource so that its i-th GPU pairs with its i-th VF:
// GPUs by address, as the vendors' runtimes enumerate them, VFs by the GPU they serve. If a question
// preceded, the plan has the order. If the kubelet asked for nothing, the GPUs are those of the allocation
// before, or the nearest: it will most likely give them next.
func (l *ledger) inPairOrder(
	tree *topology.Tree, planned []string, a, before *allocation, name string, ids []string,
) []string {
	r := l.resources[name]
	switch {
	case r == nil:
		return slices.Sorted(slices.Values(ids))
	case r.kind == device.VF && device.SameSet(planned, ids):
		return slices.Clone(planned)
	}
	taken := device.All(l.devicesOf(name, ids))
	request := placement.Request{GPUs: []placement.Half{taken}}
	if r.kind == device.VF {
		request = placement.Request{
			GPUs: []placement.Half{l.gpusBeside(r, ids, a, before)}, VFs: []placement.Half{taken},
		}
	}
	choice, err := placement.Choose(tree, request)
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
func (l *ledger) gpusBeside(r *resource, ids []string, a, before *allocation) placement.Half {
	held := l.latestOfKind(a, device.GPU)
	if len(held) == 0 {
		held = l.latestOfKind(before, device.GPU)
	}
	half := device.All(held)
	free, taken := l.onNodes(device.GPU, l.nodes(r.name, ids))
	if len(half.Held)+len(free) < len(ids) {
		half.Held, free = append(half.Held, free...), taken
	}
	half.Free = slices.DeleteFunc(free, func(d placement.Device) bool { return slices.Contains(half.Held, d) })
	half.Count = max(len(half.Held), min(len(ids), len(half.Held)+len(half.Free)))
	return half
}

// onNodes lists the healthy devices of a kind on NUMA nodes, free ones and others; on all where there are no
// nodes.
func (l *ledger) onNodes(kind device.Kind, nodes map[int]bool) (free, taken []placement.Device) {
	for _, r := range l.ofKind(kind) {
		for id, d := range r.devices {
			n, known := d.NUMA.Number()
			switch {
			case !d.Healthy || known && len(nodes) > 0 && !nodes[n]:
			case l.isFree(r.name, id):
				free = append(free, d.Placed())
			default:
				taken = append(taken, d.Placed())
			}
		}
	}
	return free, taken
}
