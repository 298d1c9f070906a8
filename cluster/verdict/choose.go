package verdict

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// giving is a container that gets its devices, one resource after the other.
type giving struct {
	*trial
	wish    *wish
	nodes   hints.Mask
	got     set
	planned *plan
}

// plan is a choice for all that a container asks for, and what it was made from.
type plan struct {
	chosen     set
	held, free set
}

// devices are those that a container gets: as devicesToAllocate of the device manager gives them, where it
// asks for a preference as the coordinator chooses. Resources with NUMA nodes come first; the kubelet takes
// them in any order.
func (t *trial) devices(w *wish, nodes hints.Mask) set {
	g := &giving{trial: t, wish: w, nodes: nodes, got: t.none()}
	for _, hinted := range []bool{true, false} {
		for _, a := range w.asked {
			if r := &t.resources[a.resource]; r.hinted == hinted && a.count > 0 {
				g.give(r, a.count)
			}
		}
	}
	return g.got
}

// give gives the container devices of one resource: what init containers left, then what is free on its NUMA
// nodes, then the rest.
func (g *giving) give(r *resource, count int) {
	must := g.reusable.part(r.all)
	if left := must.count(); left >= count {
		g.chance = g.chance || left > count // the kubelet takes any of them
		g.got.join(g.some(must, left, count))
		return
	}
	free := g.free().part(r.all)
	aligned := g.aligned(r, free)
	need := count - must.count()
	switch n := aligned.count(); {
	case need < n:
		g.got.join(g.preferred(r, must, aligned))
		return
	case need == n:
		must.join(aligned)
		g.got.join(must)
	default:
		must.join(aligned)
		free.leave(aligned)
		g.got.join(g.preferred(r, must, free))
	}
}

// some are the lowest devices of a set.
func (g *giving) some(of set, have, count int) set {
	if have == count {
		return of
	}
	lowest, n := g.none(), 0
	of.each(func(i int) {
		if n < count {
			lowest.add(i)
		}
		n++
	})
	return lowest
}

// aligned are those of some free devices that the kubelet gives first (filterByAffinity).
func (g *giving) aligned(r *resource, free set) set {
	aligned := g.none()
	for node, on := range r.on {
		if g.nodes>>node&1 == 1 {
			aligned.join(on.part(free))
		}
	}
	return aligned
}

// preferred is what the coordinator answers when the kubelet asks for devices of a resource: the best for all
// that the container wants, as far as that is known of the others.
func (g *giving) preferred(r *resource, must, free set) set {
	p := g.planned
	if p != nil && slices.Equal(p.held.part(r.all), must) && slices.Equal(p.free.part(r.all), free) {
		return p.chosen.part(r.all)
	}
	p = g.question(r, must, free)
	choice, err := placement.Choose(g.Tree, g.request(p))
	if err != nil { // fewer devices than wanted: enough has made sure that there are as many
		return must
	}
	for _, devices := range [][]placement.Device{choice.GPUs, choice.VFs} {
		for _, d := range devices {
			p.chosen.add(g.members[d.ID])
		}
	}
	g.planned = p
	return p.chosen.part(r.all)
}

// question is what of each resource is held and may be chosen when the kubelet asks for one (wantedBy in
// coordination/admission). Of the others that is what the container has already, or can take over, and what
// is free on the NUMA nodes of the devices that the kubelet offers.
func (g *giving) question(asked *resource, must, free set) *plan {
	p := &plan{chosen: g.none(), held: g.none(), free: g.none()}
	p.held.join(must)
	p.free.join(free)
	offered := must.part(must)
	offered.join(free)
	nodes, admitted := g.expected(asked, offered)
	for _, a := range g.wish.asked {
		r := &g.resources[a.resource]
		if r == asked || a.count == 0 {
			continue
		}
		held := g.got.part(r.all)
		if held.count() == 0 {
			held = g.reusable.part(r.all)
		}
		switch {
		case held.count() > a.count:
			p.free.join(held)
		case admitted:
			p.held.join(held)
			p.free.join(g.on(r, nodes))
		default:
			p.held.join(held)
		}
	}
	return p
}

// expected are the NUMA nodes that a container gets as the coordinator sees it: those of the devices that the
// kubelet offers, else what the Topology Manager will choose under policy restricted, which it may refuse.
func (g *giving) expected(r *resource, offered set) (nodes hints.Mask, admitted bool) {
	for node, on := range r.on {
		if offered.both(on) > 0 {
			nodes |= 1 << node
		}
	}
	if nodes != 0 {
		return nodes, true
	}
	var demands []hints.Demand
	for _, a := range g.wish.asked {
		if a.count > 0 {
			demands = append(demands, g.demand(&g.resources[a.resource], a.count, true))
		}
	}
	return hints.Restricted.Nodes(demands...)
}

// on are the free devices of a resource on NUMA nodes, those of unknown node included; all where there are no
// nodes.
func (g *giving) on(r *resource, nodes hints.Mask) set {
	free := g.free().part(r.all)
	for node, on := range r.on {
		if nodes != 0 && nodes>>node&1 == 0 {
			free.leave(on)
		}
	}
	return free
}

// request puts a question to placement, as coordination/admission does.
func (g *giving) request(p *plan) placement.Request {
	request := placement.Request{Links: g.Links}
	for _, a := range g.wish.asked {
		if a.count == 0 {
			continue
		}
		r := &g.resources[a.resource]
		half := placement.Half{Held: g.placed(p.held.part(r.all)), Free: g.placed(p.free.part(r.all))}
		half.Count = min(a.count, len(half.Held)+len(half.Free))
		if r.kind == gpu {
			request.GPUs = append(request.GPUs, half)
		} else {
			request.VFs = append(request.VFs, half)
		}
	}
	spare, taken := g.free(), g.taken.without(g.reusable)
	taken.leave(g.got)
	request.Spare.GPUs, request.Spare.VFs = g.placed(spare.part(g.kinds[gpu])), g.placed(spare.part(g.kinds[vf]))
	request.Taken.GPUs, request.Taken.VFs = g.placed(taken.part(g.kinds[gpu])), g.placed(taken.part(g.kinds[vf]))
	return request
}

// placed are devices as placement knows them.
func (s *shape) placed(devices set) []placement.Device {
	list := make([]placement.Device, 0, devices.count())
	for i := range s.resources {
		r := &s.resources[i]
		for n := range r.count {
			if devices.has(r.from + n) {
				list = append(list, s.Devices[i][n])
			}
		}
	}
	return list
}

// misaligned is Tandem's refusal of a container whose alignment is required and whose pairs are not on one
// switch each; "" for none (coordination/admission, refusal.go).
func (t *trial) misaligned(w *wish, devices set) string {
	if !t.wishes.required || t.wanted(w) == 0 {
		return ""
	}
	choice, err := placement.Choose(t.Tree, placement.Request{
		GPUs: []placement.Half{all(t.placed(devices.part(t.kinds[gpu])))},
		VFs:  []placement.Half{all(t.placed(devices.part(t.kinds[vf])))},
	})
	if err != nil {
		return ""
	}
	together := placement.Together(choice.Pairs)
	if together == len(choice.Pairs) {
		return ""
	}
	return aligned(together, len(choice.Pairs))
}

// all is the half of a request in which everything is decided.
func all(devices []placement.Device) placement.Half {
	return placement.Half{Count: len(devices), Held: devices}
}
