package coordination

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// request puts a question to placement: the half that is asked, from what the kubelet offers; the other half, given to the
// container before or as it will most likely be asked for.
func (l *ledger) request(tree *topology.Tree, r *resource, usable []string, q question, holder *allocation) placement.Request {
	asked := l.askedHalf(r, usable, q, holder)
	other := l.otherHalf(r, q, asked, holder)
	request := placement.Request{GPUs: []placement.Half{asked}, VFs: []placement.Half{other}, Load: l.load(tree, holder)}
	if r.kind == VF {
		request.GPUs, request.VFs = request.VFs, request.GPUs
	}
	for _, gpus := range l.ofKind(GPU) {
		request.Links = append(request.Links, gpus.links...)
	}
	request.Spare = placement.Spare{GPUs: l.spare(GPU, request.GPUs[0]), VFs: l.spare(VF, request.VFs[0])}
	return request
}

// spare lists the free devices of a kind that a half cannot choose from.
func (l *ledger) spare(kind Kind, half placement.Half) []placement.Device {
	offered := make(map[string]bool, len(half.Free))
	for _, d := range half.Free {
		offered[d.ID] = true
	}
	var spare []placement.Device
	for _, r := range l.ofKind(kind) {
		for _, d := range l.free(r) {
			if !offered[d.ID] {
				spare = append(spare, d.placed())
			}
		}
	}
	return spare
}

// askedHalf is the half of the question: what must be in it, what the container has of the same kind under other resource
// names (VFs of other rails), and what can be chosen.
func (l *ledger) askedHalf(r *resource, usable []string, q question, holder *allocation) placement.Half {
	half := placement.Half{}
	for _, id := range q.mustInclude {
		half.Held = append(half.Held, r.device(id).placed())
	}
	others := 0
	for _, d := range l.heldOfKind(holder, r.kind) {
		if _, same := holder.devices[r.name][d.ID]; !same {
			half.Held = append(half.Held, d.placed())
			others++
		}
	}
	for _, id := range usable {
		if !slices.Contains(q.mustInclude, id) {
			half.Free = append(half.Free, r.device(id).placed())
		}
	}
	half.Count = q.size + others
	return half
}

// otherHalf is what the container has of the other kind. Where it has nothing yet, or is taking over from an init
// container, as many as are asked for now are planned: pairs are the common request.
func (l *ledger) otherHalf(r *resource, q question, asked placement.Half, holder *allocation) placement.Half {
	kind := GPU
	if r.kind == GPU {
		kind = VF
	}
	half := placement.Half{}
	for _, d := range l.heldOfKind(holder, kind) {
		half.Held = append(half.Held, d.placed())
	}
	half.Count = len(half.Held)
	if half.Count > 0 && len(q.mustInclude) == 0 {
		return half
	}
	for _, d := range l.expected(kind, r, q, asked.Count-half.Count) {
		half.Free = append(half.Free, d.placed())
	}
	half.Count = max(half.Count, min(asked.Count, half.Count+len(half.Free)))
	return half
}

// expected lists the free devices of a kind that the kubelet will offer the container that asks for r now: those on its
// NUMA nodes. The offered devices show the nodes; where they have none (excludeTopology) the nodes that the Topology
// Manager will give count devices of the kind are predicted.
func (l *ledger) expected(kind Kind, r *resource, q question, count int) []Device {
	var free []Device
	demand := Demand{Count: count}
	for _, other := range l.ofKind(kind) {
		free = append(free, l.free(other)...)
		for _, d := range other.devices {
			demand.All = append(demand.All, d.NUMA)
		}
	}
	for _, d := range free {
		demand.Free = append(demand.Free, d.NUMA)
	}
	nodes := l.nodes(r.name, q.available)
	if len(nodes) == 0 {
		predicted, admitted := PredictNodes([]Demand{demand})
		if !admitted {
			return nil
		}
		for _, n := range predicted {
			nodes[n] = true
		}
	}
	return slices.DeleteFunc(free, func(d Device) bool {
		n, known := d.NUMA.Number()
		return known && len(nodes) > 0 && !nodes[n]
	})
}

// load counts the VFs that other containers hold of each PF.
func (l *ledger) load(tree *topology.Tree, holder *allocation) map[topology.Address]int {
	load := map[topology.Address]int{}
	for _, r := range l.ofKind(VF) {
		for id, a := range l.holders[r.name] {
			if d, ok := tree.Device(r.device(id).Address); ok && a != holder {
				load[d.Function()]++
			}
		}
	}
	return load
}

// newPlan keeps a choice: the answer to the question, and what is left for the other resources of the request.
func (l *ledger) newPlan(choice placement.Choice, r *resource, q question, holder *allocation) *plan {
	p := &plan{devices: map[string][]string{}, holder: holder, after: l.sequence, expires: l.now().Add(planTTL)}
	offered := map[string]bool{}
	for _, id := range slices.Concat(q.available, q.mustInclude) {
		offered[id] = true
	}
	asked, other := choice.GPUs, choice.VFs
	if r.kind == VF {
		asked, other = other, asked
	}
	for _, d := range asked {
		if offered[d.ID] {
			p.devices[r.name] = append(p.devices[r.name], d.ID)
		}
	}
	for _, d := range other {
		if name := l.resourceOf(d.ID, r.name); name != "" && (holder.devices[name] == nil || len(q.mustInclude) > 0) {
			p.devices[name] = append(p.devices[name], d.ID)
		}
	}
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

// inPairOrder orders what a container was given of a resource so that its i-th GPU pairs with its i-th VF: GPUs by address,
// as the vendors' runtimes enumerate them, VFs by the GPU they serve. If a question preceded, the plan has the order. If the
// kubelet asked for nothing, the GPUs are those of the allocation before, or the nearest: it will most likely give them next.
func (l *ledger) inPairOrder(tree *topology.Tree, planned []string, a, before *allocation, name string, ids []string) []string {
	r := l.resources[name]
	switch {
	case r == nil:
		return slices.Sorted(slices.Values(ids))
	case r.kind == VF && sameSet(planned, ids):
		return slices.Clone(planned)
	}
	taken := placement.Half{Count: len(ids)}
	for _, id := range ids {
		taken.Held = append(taken.Held, r.device(id).placed())
	}
	request := placement.Request{GPUs: []placement.Half{taken}}
	if r.kind == VF {
		request = placement.Request{GPUs: []placement.Half{l.gpusBeside(r, ids, a, before)}, VFs: []placement.Half{taken}}
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

// gpusBeside are the GPUs that VFs given without a question most likely serve: those of their container, as far as they are
// known, then those that are free on the VFs' NUMA nodes, then the others there. Nothing was read just now, so that what was
// given last to a container that is gone still counts as held.
func (l *ledger) gpusBeside(r *resource, ids []string, a, before *allocation) placement.Half {
	held := l.heldOfKind(a, GPU)
	if len(held) == 0 {
		held = l.heldOfKind(before, GPU)
	}
	half := allOf(held)
	free, taken := l.onNodes(GPU, l.nodes(r.name, ids))
	if len(half.Held)+len(free) < len(ids) {
		half.Held, free = append(half.Held, free...), taken
	}
	half.Free = slices.DeleteFunc(free, func(d placement.Device) bool { return slices.Contains(half.Held, d) })
	half.Count = max(len(half.Held), min(len(ids), len(half.Held)+len(half.Free)))
	return half
}

// onNodes lists the healthy devices of a kind on NUMA nodes, free ones and others; on all where there are no nodes.
func (l *ledger) onNodes(kind Kind, nodes map[int]bool) (free, taken []placement.Device) {
	for _, r := range l.ofKind(kind) {
		for id, d := range r.devices {
			n, known := d.NUMA.Number()
			switch {
			case !d.Healthy || known && len(nodes) > 0 && !nodes[n]:
			case l.holders[r.name][id] == nil:
				free = append(free, d.placed())
			default:
				taken = append(taken, d.placed())
			}
		}
	}
	return free, taken
}

// allOf is the half of a request in which everything is decided.
func allOf(devices []Device) placement.Half {
	half := placement.Half{Count: len(devices)}
	for _, d := range devices {
		half.Held = append(half.Held, d.placed())
	}
	return half
}

// placed is the device as placement knows it.
func (d Device) placed() placement.Device { return placement.Device{ID: d.ID, Address: d.Address} }
