// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/locality"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// ahead maximizes pairs in the long run by the values of an outlook: the pairs of this container and of those
// to come. Without an outlook it chooses step by step.
type ahead struct {
	node    *world.Node
	outlook *outlook
	slots   [2][]int // by device: its place in a holding of its NUMA node
	worth   map[holding]float64
	step    world.Prefer
}

func newAhead(n *world.Node, o *outlook) world.Prefer {
	a := &ahead{node: n, outlook: o, worth: map[holding]float64{}, step: joint(n)}
	for _, kind := range world.Kinds {
		a.slots[kind] = make([]int, n.Count(kind))
	}
	for numa := range n.NUMA {
		a.number(newDomain(n, numa))
	}
	return a.prefer
}

// number assigns places to the devices of a NUMA node.
func (a *ahead) number(d domain) {
	for _, c := range d.switches {
		next := [2]int{c.from, c.from + c.gpus}
		for _, kind := range world.Kinds {
			for i, dev := range a.node.Devices[kind] {
				if dev.Switch == c.onSwitch {
					a.slots[kind][i] = next[kind]
					next[kind]++
				}
			}
		}
	}
}

func (a *ahead) prefer(s *world.State, q world.Question, rng *rand.Rand) []int {
	if q.Mask.Count() != 1 {
		return a.step(s, q, rng)
	}
	before := a.holding(s, q.Mask)
	var chosen []int
	best := math.Inf(-1)
	other := q.Kind.Other()
	locality.EachSet(q.Available, q.Size, func(mine []int) {
		try := func(theirs []int) {
			var c world.Container
			c.Devices[q.Kind], c.Devices[other] = mine, theirs
			pairs, _, _ := a.node.Pairs(c)
			if v := float64(pairs) + a.value(before, c); v > best+closeEnough {
				best, chosen = v, slices.Clone(mine)
			}
		}
		if allocated := q.Allocated[other]; len(allocated) > 0 || q.Request.Of(other) == 0 {
			try(allocated)
		} else {
			locality.EachSet(s.Offered(other, q), q.Request.Of(other), try)
		}
	})
	return chosen
}

// holding returns the holding of a NUMA node, without the devices of the container in admission.
func (a *ahead) holding(s *world.State, mask hints.Mask) holding {
	var h holding
	numbers := map[int]byte{}
	for _, kind := range world.Kinds {
		for i, d := range a.node.Devices[kind] {
			by, owned := s.Owner(kind, i)
			if d.NUMA < 0 || mask>>d.NUMA&1 == 0 || !owned {
				continue
			}
			if numbers[by] == 0 {
				numbers[by] = byte(len(numbers) + 1)
			}
			h[a.slots[kind][i]] = numbers[by]
		}
	}
	return h
}

// value returns the value of the node's remaining devices after an admission.
func (a *ahead) value(h holding, c world.Container) float64 {
	for _, kind := range world.Kinds {
		for _, i := range c.Devices[kind] {
			h[a.slots[kind][i]] = math.MaxUint8
		}
	}
	h = renumbered(h)
	v, ok := a.worth[h]
	if !ok {
		v = a.outlook.values[a.outlook.alike(h)]
		a.worth[h] = v
	}
	return v
}
