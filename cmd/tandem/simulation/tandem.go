package simulation

import (
	"math/rand/v2"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// tandem asks package placement as the coordinator does: the half that is asked from what the kubelet offers,
// the other half as it was given or as it will most likely be asked for.
type tandem struct {
	node  *world.Node
	known bool // the pod's spec could be read
	index [2]map[string]int
}

func tandemUnknown(n *world.Node) world.Prefer { return newTandem(n, false).prefer }
func tandemKnown(n *world.Node) world.Prefer   { return newTandem(n, true).prefer }

func newTandem(n *world.Node, known bool) *tandem {
	t := &tandem{node: n, known: known}
	for _, kind := range world.Kinds {
		t.index[kind] = make(map[string]int, n.Count(kind))
		for i, d := range n.Devices[kind] {
			t.index[kind][d.ID] = i
		}
	}
	return t
}

func (t *tandem) prefer(s *world.State, q world.Question, _ *rand.Rand) []int {
	asked := placement.Half{
		Count: q.Size,
		Held:  t.devices(q.Kind, q.Must),
		Free: t.devices(q.Kind,
			slices.DeleteFunc(slices.Clone(q.Available), func(i int) bool { return slices.Contains(q.Must, i) })),
	}
	other := t.otherHalf(s, q)
	r := placement.Request{GPUs: []placement.Half{asked}, VFs: []placement.Half{other}, Links: t.node.Links}
	if q.Kind == world.VF {
		r.GPUs, r.VFs = r.VFs, r.GPUs
	}
	r.Spare.GPUs, r.Taken.GPUs = t.beside(s, world.GPU)
	r.Spare.VFs, r.Taken.VFs = t.beside(s, world.VF)
	choice, err := placement.Choose(t.node.Tree, r)
	if err != nil {
		return nil
	}
	chosen := choice.GPUs
	if q.Kind == world.VF {
		chosen = choice.VFs
	}
	indices := make([]int, len(chosen))
	for i, d := range chosen {
		indices[i] = t.index[q.Kind][d.ID]
	}
	return indices
}

func (t *tandem) devices(kind world.Kind, indices []int) []placement.Device {
	list := make([]placement.Device, len(indices))
	for i, d := range indices {
		list[i] = t.node.Devices[kind][d].Device
	}
	return list
}

// otherHalf is what the container has of the other kind; where it has nothing yet, as many as it asks for or,
// where that is not known, as many as are asked for now.
func (t *tandem) otherHalf(s *world.State, q world.Question) placement.Half {
	kind := q.Kind.Other()
	if given := q.Given[kind]; len(given) > 0 {
		return placement.Half{Count: len(given), Held: t.devices(kind, given)}
	}
	count := q.Size
	if t.known {
		count = q.Request.Of(kind)
	}
	free := t.devices(kind, t.expected(s, q, kind, count))
	return placement.Half{Count: min(count, len(free)), Free: free}
}

// expected lists the free devices of the other kind that the kubelet will offer: those on the NUMA nodes of
// what it offers now or, where these have none, on the nodes that it will probably choose.
func (t *tandem) expected(s *world.State, q world.Question, kind world.Kind, count int) []int {
	var nodes hints.Mask
	for _, i := range q.Available {
		if n := s.NUMA(q.Kind, i); n >= 0 {
			nodes |= 1 << n
		}
	}
	if nodes == 0 && s.Rules().Policy != hints.None {
		var admitted bool
		if nodes, admitted = hints.Restricted.Nodes(s.Demand(kind, count)); !admitted {
			return nil
		}
	}
	var free []int
	for i := range t.node.Devices[kind] {
		n := s.NUMA(kind, i)
		if !s.Taken(kind, i) && (n < 0 || nodes == 0 || nodes>>n&1 == 1) {
			free = append(free, i)
		}
	}
	return free
}

// beside lists all devices of a kind that are free, and all that are held.
func (t *tandem) beside(s *world.State, kind world.Kind) (spare, taken []placement.Device) {
	for i, d := range t.node.Devices[kind] {
		if s.Taken(kind, i) {
			taken = append(taken, d.Device)
		} else {
			spare = append(spare, d.Device)
		}
	}
	return spare, taken
}
