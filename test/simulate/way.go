// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/plan/locality"
	"github.com/tandem-k8s/tandem/coordination/spelling"
	"github.com/tandem-k8s/tandem/test/simulate/world"
)

// Way is a way of choosing.
type Way struct {
	Name  string // for flags and programs
	Title string // for people
	make  func(*world.Node) world.Prefer
}

// Prefer returns the way's answers to the kubelet. It caches results and is not safe for concurrent use.
func (w Way) Prefer(n *world.Node) world.Prefer { return w.make(n) }

// Ways returns all ways, in the order of the tables.
func Ways() []Way {
	return []Way{
		{Name: "stock", Title: "stock pair", make: Stock},
		{Name: "tandem-unknown", Title: "Tandem, partner's request unknown", make: tandemUnknown},
		{Name: "tandem", Title: "Tandem, request known", make: tandemKnown},
		{Name: "joint", Title: "best pairs, step by step", make: joint},
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
