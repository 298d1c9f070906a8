// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"github.com/tandem-k8s/tandem/cluster/rank"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Stranded is how many pairs the free devices would make were it not for the switches, less those that they
// do make.
func (s *State) Stranded() int { return s.node.switches.Stranded(s.node.devices, s.free()) }

// Room is what the free devices make room for. The containers ask for the GPUs and the VFs of which the node
// has most. CPUs and memory are not looked at.
func (s *State) Room() rank.Room {
	n := s.node
	g, v := n.largest(devicemanager.GPU), n.largest(devicemanager.VF)
	if g == nil || v == nil {
		return rank.Room{}
	}
	free := s.free()
	return rank.Fit(n.pairsOn(free.Intersection(g.All), free.Intersection(v.All)),
		func(size int, pairs hints.PerNode) (hints.Mask, bool) {
			demands := make([]hints.Demand, 0, 2)
			for _, r := range [...]*devicemanager.Resource{g, v} {
				if r.Hinted {
					demands = append(demands, hints.Demand{Count: size, All: r.Total, Free: pairs})
				}
			}
			return n.kubelet.Rule.Nodes(demands)
		})
}

// largest is the resource of a kind of which there are most devices, nil for none.
func (s *shape) largest(kind devicemanager.Kind) *devicemanager.Resource {
	var most *devicemanager.Resource
	for i := range s.devices.Resources {
		if r := &s.devices.Resources[i]; r.Kind == kind && (most == nil || r.Count > most.Count) {
			most = r
		}
	}
	return most
}

// pairsOn is how many pairs free devices of two resources make on the switches of each NUMA node, as the
// kubelet was told of the nodes: all are on node 0 where it was told of none.
func (s *shape) pairsOn(gpus, vfs devicemanager.Set) hints.PerNode {
	pairs := make(hints.PerNode, 64)
	for i := range s.switches {
		on := &s.switches[i]
		if p := min(gpus.Common(on[devicemanager.GPU]), vfs.Common(on[devicemanager.VF])); p > 0 {
			pairs[s.told(on)] += p
		}
	}
	return pairs
}

// told is the NUMA node that the kubelet was told for devices of a switch.
func (s *shape) told(of *[2]devicemanager.Set) int {
	for i := range s.devices.Resources {
		r := &s.devices.Resources[i]
		for node, on := range r.On {
			if on.Common(of[r.Kind]) > 0 {
				return node
			}
		}
	}
	return 0
}

// Free is how many healthy devices of all resources nobody has.
func (s *State) Free() int { return s.free().Len() }

func (s *State) free() devicemanager.Set { return s.node.healthy.Difference(s.taken) }
