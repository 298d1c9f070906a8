package simulation

import (
	"math/rand/v2"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// tandem asks package placement as the coordinator does: the half that is asked from what the kubelet offers, the other half
// as it was given or as it will most likely be asked for.
type tandem struct {
	node  *Node
	known bool // the pod's spec could be read
	index [2]map[string]int
}

func tandemUnknown(n *Node) Prefer { return newTandem(n, false).prefer }
func tandemKnown(n *Node) Prefer   { return newTandem(n, true).prefer }

func newTandem(n *Node, known bool) *tandem {
	t := &tandem{node: n, known: known}
	for _, kind := range kinds {
		t.index[kind] = make(map[string]int, n.Count(kind))
		for i, d := range n.devices[kind] {
			t.index[kind][d.ID] = i
		}
	}
	return t
}

func (t *tandem) prefer(s *State, q Question, _ *rand.Rand) []int {
	asked := placement.Half{
		Count: q.Size,
		Held:  t.devices(q.Kind, q.Must),
		Free:  t.devices(q.Kind, without(q.Available, q.Must)),
	}
	other := t.otherHalf(s, q)
	r := placement.Request{GPUs: []placement.Half{asked}, VFs: []placement.Half{other}, Links: t.node.links}
	if q.Kind == VF {
		r.GPUs, r.VFs = r.VFs, r.GPUs
	}
	r.Spare.GPUs, r.Taken.GPUs = t.beside(s, GPU)
	r.Spare.VFs, r.Taken.VFs = t.beside(s, VF)
	choice, err := placement.Choose(t.node.tree, r)
	if err != nil {
		return nil
	}
	chosen := choice.GPUs
	if q.Kind == VF {
		chosen = choice.VFs
	}
	indices := make([]int, len(chosen))
	for i, d := range chosen {
		indices[i] = t.index[q.Kind][d.ID]
	}
	return indices
}

func (t *tandem) devices(kind Kind, indices []int) []placement.Device {
	list := make([]placement.Device, len(indices))
	for i, d := range indices {
		list[i] = t.node.devices[kind][d].Device
	}
	return list
}

// otherHalf is what the container has of the other kind; where it has nothing yet, as many as it asks for or, where that is
// not known, as many as are asked for now.
func (t *tandem) otherHalf(s *State, q Question) placement.Half {
	kind := q.Kind.other()
	if given := q.Given[kind]; len(given) > 0 {
		return placement.Half{Count: len(given), Held: t.devices(kind, given)}
	}
	count := q.Size
	if t.known {
		count = q.Request.of(kind)
	}
	free := t.devices(kind, t.expected(s, q, kind, count))
	return placement.Half{Count: min(count, len(free)), Free: free}
}

// expected lists the free devices of the other kind that the kubelet will offer: those on the NUMA nodes of what it offers now or,
// where these have none, on the nodes that it will probably choose.
func (t *tandem) expected(s *State, q Question, kind Kind, count int) []int {
	var nodes hints.Mask
	for _, i := range q.Available {
		if n := s.numa(q.Kind, i); n >= 0 {
			nodes |= 1 << n
		}
	}
	if nodes == 0 && s.rules.Policy != hints.None {
		var admitted bool
		if nodes, admitted = hints.Restricted.Nodes(s.demand(kind, count)); !admitted {
			return nil
		}
	}
	var free []int
	for i, taken := range s.taken[kind] {
		n := s.numa(kind, i)
		if !taken && (n < 0 || nodes == 0 || nodes>>n&1 == 1) {
			free = append(free, i)
		}
	}
	return free
}

// beside lists all devices of a kind that are free, and all that are held.
func (t *tandem) beside(s *State, kind Kind) (spare, taken []placement.Device) {
	for i, isTaken := range s.taken[kind] {
		if d := t.node.devices[kind][i].Device; isTaken {
			taken = append(taken, d)
		} else {
			spare = append(spare, d)
		}
	}
	return spare, taken
}
