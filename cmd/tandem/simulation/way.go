// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/locality"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/spelling"
)

// Way is a way of choosing.
type Way struct {
	Name  string // for flags and programs
	Title string // for people
	whole bool   // chooses on the whole node: there is no kubelet to refuse
	ahead bool   // chooses by an outlook
	make  func(*world.Node) world.Prefer
}

// Prefer returns the way's answers to the kubelet. It caches results and is not safe for concurrent use. The
// way ahead has no outlook here and chooses step by step.
func (w Way) Prefer(n *world.Node) world.Prefer { return w.make(n) }

// Ways returns all ways, in the order of the tables.
func Ways() []Way {
	return []Way{
		{Name: "stock", Title: "stock pair", make: Stock},
		{Name: "follow", Title: "second follows first", make: follow},
		{Name: "tandem-unknown", Title: "Tandem, partner's request unknown", make: tandemUnknown},
		{Name: "tandem", Title: "Tandem, request known", make: tandemKnown},
		{Name: "joint", Title: "best pairs, step by step", make: joint},
		{Name: "keep", Title: "best pairs, partners kept for later", make: keeping},
		{Name: "ahead", Title: "most pairs in the long run", ahead: true, make: joint},
		{Name: "whole-node", Title: "best pairs on the whole node, no kubelet", whole: true, make: wholeNode},
	}
}

// WayNames returns the names of all ways.
func WayNames() []string {
	var names []string
	for _, w := range Ways() {
		names = append(names, w.Name)
	}
	return names
}

// FindWays finds ways by name, all for an empty list.
func FindWays(names []string) ([]Way, error) {
	all := Ways()
	if len(names) == 0 {
		return all, nil
	}
	var found []Way
	for _, name := range names {
		i := slices.IndexFunc(all, func(w Way) bool { return w.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("find way %q: there are %s%s", name, strings.Join(WayNames(), ", "),
				spelling.Question(name, WayNames()))
		}
		found = append(found, all[i])
	}
	return found, nil
}

// Stock is the pair of stock plugins: the nearest GPUs, any VFs. The result caches, and is not safe for
// concurrent use.
func Stock(n *world.Node) world.Prefer {
	v := locality.NewVendor(n.Locality)
	return func(_ *world.State, q world.Question, rng *rand.Rand) []int {
		if q.Kind == world.VF {
			return nil
		}
		return v.Choose(q.Available, q.Size, rng)
	}
}

// follow is a pair of plugins that know each other's allocations: the first chooses like the stock plugin,
// the second takes devices on the same switches.
func follow(n *world.Node) world.Prefer {
	first := Stock(n)
	return func(s *world.State, q world.Question, rng *rand.Rand) []int {
		allocated := q.Allocated[q.Kind.Other()]
		if len(allocated) == 0 {
			return first(s, q, rng)
		}
		missing := make([]int, n.Switches)
		for _, i := range allocated {
			if at := n.Devices[q.Kind.Other()][i].Switch; at >= 0 {
				missing[at]++
			}
		}
		var near []int
		for _, i := range world.Pick(slices.Clone(q.Available), len(q.Available), rng) {
			if at := n.Devices[q.Kind][i].Switch; at >= 0 && missing[at] > 0 && len(near) < q.Size {
				missing[at]--
				near = append(near, i)
			}
		}
		return near
	}
}
