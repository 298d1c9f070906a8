// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cluster/rank"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/spelling"
)

// Scheduler is a way of choosing the node of a pod.
type Scheduler struct {
	Name  string // for flags and programs
	Title string // for people
	// passes reports whether a node with enough free devices passes the filter.
	passes func(*view) bool
	// better returns a positive number if a is the better node, 0 if both are equal.
	better func(a, b *view) int
}

// Schedulers returns all schedulers, in the order of the tables.
func Schedulers() []Scheduler {
	return []Scheduler{
		{"least", "default scheduler, LeastAllocated", anyNode, func(a, b *view) int { return -packed(a, b) }},
		{"most", "default scheduler, MostAllocated", anyNode, packed},
		{"numa", "NodeResourceTopologyMatch, then most", anyNode, func(a, b *view) int {
			return cmp.Or(cmp.Compare(b.nodes(), a.nodes()), packed(a, b))
		}},
		{"exact", "the kubelet's verdict, then most", (*view).admitted, packed},
		{"tandem", "tandem-scheduler", (*view).admitted, func(a, b *view) int {
			return rank.Compare(a.offer(), b.offer())
		}},
	}
}

// SchedulerNames returns the names of all schedulers.
func SchedulerNames() []string {
	var names []string
	for _, s := range Schedulers() {
		names = append(names, s.Name)
	}
	return names
}

// FindSchedulers finds schedulers by name, all for an empty list.
func FindSchedulers(names []string) ([]Scheduler, error) {
	all := Schedulers()
	if len(names) == 0 {
		return all, nil
	}
	var found []Scheduler
	for _, name := range names {
		i := slices.IndexFunc(all, func(s Scheduler) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("find scheduler %q: there are %s%s", name, strings.Join(SchedulerNames(), ", "),
				spelling.Question(name, SchedulerNames()))
		}
		found = append(found, all[i])
	}
	return found, nil
}

func anyNode(*view) bool { return true }

// packed returns a positive number if a has the smaller free share of the requested resources, all with equal
// weight (NodeResourcesFit).
func packed(a, b *view) int { return cmp.Compare(b.freeShare(), a.freeShare()) }

func (v *view) freeShare() float64 {
	sum, kinds := 0.0, 0.0
	for _, kind := range world.Kinds {
		if v.request.Of(kind) > 0 {
			sum += float64(v.state.Free(kind)) / float64(v.state.Node.Count(kind))
			kinds++
		}
	}
	return sum / kinds
}
