// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"math/rand/v2"

	"github.com/tandem-k8s/tandem/cluster/rank"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// view is a node as a scheduler sees it for one request, with results cached until the node changes.
type view struct {
	state   *world.State
	prefer  world.Prefer
	request world.Request

	verdict *bool
	offered *rank.Offer
	width   int
}

// renew clears the cached results after a change of the node.
func (v *view) renew() { v.verdict, v.offered, v.width = nil, nil, 0 }

// admitted returns the kubelet's verdict.
func (v *view) admitted() bool {
	if v.verdict == nil {
		_, admitted := v.state.Affinity(v.request)
		v.verdict = &admitted
	}
	return *v.verdict
}

// nodes returns the smallest number of NUMA nodes with enough free devices, or all of them if a kind is
// announced without NUMA nodes.
func (v *view) nodes() int {
	if v.width > 0 {
		return v.width
	}
	all := len(v.state.Node.NUMA)
	v.width = max(all, 1)
	for m := hints.Mask(1); m < 1<<all; m++ {
		enough := true
		for _, kind := range world.Kinds {
			n := v.request.Of(kind)
			enough = enough && (n == 0 || v.state.FreeAt(kind, m) >= n)
		}
		if enough {
			v.width = min(v.width, m.Count())
		}
	}
	return v.width
}

// offer returns the node's offer: it admits the pod, rates the node, and removes the pod.
func (v *view) offer() rank.Offer {
	if v.offered != nil {
		return *v.offered
	}
	s := v.state
	before := devices{s}.Room()
	c, _ := s.Admit(v.request, world.GPU, v.prefer, rand.New(rand.NewPCG(0, 0)))
	pairs, _, _ := s.Node.Pairs(c)
	o := rank.NewOffer(pairs, before, devices{s})
	s.Release(c)
	v.offered = &o
	return o
}

// devices are the free devices of a node ([rank.Devices]).
type devices struct{ *world.State }

func (s devices) Free() int { return s.State.Free(world.GPU) + s.State.Free(world.VF) }

func (s devices) Room() rank.Room {
	n := s.Node
	pairs := make(hints.PerNode, len(n.NUMA)+1) // the last is for switches with an unknown node
	seen := make([]bool, n.Switches)
	for _, d := range n.Devices[world.GPU] {
		if d.Switch < 0 || seen[d.Switch] {
			continue
		}
		seen[d.Switch] = true
		at := d.NUMA
		if at < 0 {
			at = len(pairs) - 1
		}
		pairs[at] += min(s.FreeOn(world.GPU, d.Switch), s.FreeOn(world.VF, d.Switch))
	}
	return rank.Fit(pairs, func(size int, free hints.PerNode) (hints.Mask, bool) {
		g, v := s.Demand(world.GPU, size), s.Demand(world.VF, size)
		g.Free, v.Free = free, free
		return s.Rules.Policy.Nodes(g, v)
	})
}
