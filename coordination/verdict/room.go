// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/rank"
)

// Stranded returns the number of pairs that the free devices cannot form because of their switches.
func (s *State) Stranded() int { return s.node.switches.Stranded(s.node.devices, s.free()) }

// Room returns the room of the free devices for containers that request the most frequent GPU and VF
// resources of the node. CPUs and memory are ignored.
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

// largest returns the resource of a kind with the most devices, nil for none.
func (s *shape) largest(kind devicemanager.Kind) *devicemanager.Resource {
	var most *devicemanager.Resource
	for i := range s.devices.Resources {
		if r := &s.devices.Resources[i]; r.Kind == kind && (most == nil || r.Count > most.Count) {
			most = r
		}
	}
	return most
}

// pairsOn returns the number of pairs that free devices of two resources form on the switches of each NUMA
// node in the hints of the kubelet. Devices without hints count for node 0.
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

// told returns the NUMA node in the hints for the devices of a switch.
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

// Free returns the number of free healthy devices of all resources.
func (s *State) Free() int { return s.free().Len() }

func (s *State) free() devicemanager.Set { return s.node.healthy.Difference(s.taken) }
