package verdict

import (
	"github.com/tandem-k8s/tandem/cluster/rank"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Stranded is how many pairs the free devices would make were it not for the switches, less those that they
// do make.
func (s *State) Stranded() int {
	free := s.node.healthy.without(s.taken)
	return min(free.both(s.node.kinds[gpu]), free.both(s.node.kinds[vf])) - s.node.pairs(free)
}

// Room is what the free devices make room for. The containers ask for the GPUs and the VFs of which the node
// has most. CPUs and memory are not looked at.
func (s *State) Room() rank.Room {
	n := s.node
	g, v := n.largest(gpu), n.largest(vf)
	if g == nil || v == nil {
		return rank.Room{}
	}
	free := n.healthy.without(s.taken)
	return rank.Fit(n.pairsOn(free.part(g.all), free.part(v.all)),
		func(size int, pairs hints.PerNode) (hints.Mask, bool) {
			demands := make([]hints.Demand, 0, 2)
			for _, r := range [...]*resource{g, v} {
				if r.hinted {
					demands = append(demands, hints.Demand{Count: size, All: r.total, Free: pairs})
				}
			}
			return n.rule.Nodes(demands)
		})
}

// largest is the resource of a kind of which there are most devices, nil for none.
func (s *shape) largest(kind int) *resource {
	var most *resource
	for i := range s.resources {
		if r := &s.resources[i]; r.kind == kind && (most == nil || r.count > most.count) {
			most = r
		}
	}
	return most
}

// pairsOn is how many pairs free devices of two resources make on the switches of each NUMA node, as the
// kubelet was told of the nodes: all are on node 0 where it was told of none.
func (n *Node) pairsOn(gpus, vfs set) hints.PerNode {
	pairs := make(hints.PerNode, 64)
	for i := range n.switches {
		on := &n.switches[i]
		if p := min(gpus.both(on.devices[gpu]), vfs.both(on.devices[vf])); p > 0 {
			pairs[n.told(on)] += p
		}
	}
	return pairs
}

// told is the NUMA node that the kubelet was told for devices of a switch.
func (s *shape) told(b *bridged) int {
	for i := range s.resources {
		r := &s.resources[i]
		for node, on := range r.on {
			if on.both(b.devices[r.kind]) > 0 {
				return node
			}
		}
	}
	return 0
}

// Free is how many healthy devices of all resources nobody has.
func (s *State) Free() int { return s.node.healthy.without(s.taken).count() }
