// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/test/model/topologymanager"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// judgePairs judges whether the container can still have the best pairs after an answer: on the NUMA nodes
// that the kubelet has chosen or, if a pod has ended since, on the nodes that the kubelet would choose now.
func (m model) judgePairs(s state, in input) []breach {
	if m.Names && m.inherits(s, in) {
		return nil
	}
	found := m.judgePairsOn(s, in, in.nodes)
	if found != nil && in.surprised {
		if nodes, admitted := m.nodesNow(s, in); admitted && m.judgePairsOn(s, in, nodes) == nil {
			return nil
		}
	}
	return found
}

// judgePairsOn judges whether the container can still have the best pairs on NUMA nodes.
func (m model) judgePairsOn(s state, in input, nodes []int) []breach {
	e := in.event
	request := m.request(s, in, nodes)
	offered := placement.Half{Count: e.Offer.Size, Held: m.placed(e.Resource, e.Offer.MustInclude)}
	offered.Free = slices.DeleteFunc(m.placed(e.Resource, e.Offer.Available), func(d placement.Device) bool {
		return slices.Contains(offered.Held, d)
	})
	request[e.Resource] = offered
	best, err := m.best(request)
	if err != nil {
		return []breach{{NotBest, err.Error()}}
	}
	got, err := m.best(request.with(e.Resource, m.placed(e.Resource, e.Devices)))
	if err != nil {
		return []breach{{NotBest, err.Error()}}
	}
	if got != best {
		return []breach{{NotBest, fmt.Sprintf("the answer permits pairs %v, best %v", got, best)}}
	}
	return nil
}

// inherits reports whether init containers leave devices of another resource to the container.
func (m model) inherits(s state, in input) bool {
	for name, count := range in.container.Requests {
		if name != in.event.Resource && count > 0 && len(s.of(name, in.isLeft)) > 0 {
			return true
		}
	}
	return false
}

// nodesNow returns the NUMA nodes that the kubelet's Topology Manager would choose for the container in a
// state, and false for a rejection.
func (m model) nodesNow(s state, in input) ([]int, bool) {
	if len(in.nodes) == 0 {
		return nil, true
	}
	var resources []topologymanager.Resource
	for name, count := range in.container.Requests {
		if _, known := m.Kinds[name]; !known || count == 0 {
			continue
		}
		r := topologymanager.Resource{Count: count}
		for _, d := range m.Devices[name] {
			r.All = append(r.All, d.NUMA)
			switch o, held := s[owned{name, d.ID}]; {
			case held && in.isLeft(o):
				r.Reusable = append(r.Reusable, d.NUMA)
			case held && in.isOwner(o), !held:
				r.Free = append(r.Free, d.NUMA)
			}
		}
		resources = append(resources, r)
	}
	return topologymanager.Manager{}.Affinity(resources)
}
