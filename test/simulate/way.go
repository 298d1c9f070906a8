// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/spelling"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Way is a way of choosing.
type Way struct {
	Name  string // for flags and programs
	Title string // for people
	make  func(*Node) Prefer
}

// Prefer returns the way's answers to the kubelet. It caches results and is not safe for concurrent use.
func (w Way) Prefer(n *Node) Prefer { return w.make(n) }

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
func Stock(n *Node) Prefer {
	v := machine.NewVendor(n.Locality)
	return func(_ *State, q Question, rng *rand.Rand) []int {
		if q.Kind == VF {
			return nil
		}
		return v.Choose(q.Available, q.Size, rng)
	}
}

// tandem chooses like the coordinator: the requested half from the kubelet's list; the other half as
// allocated, or as the most likely request.
type tandem struct {
	node  *Node
	known bool // the pod's spec could be read
}

func tandemUnknown(n *Node) Prefer { return (&tandem{node: n}).prefer }
func tandemKnown(n *Node) Prefer   { return (&tandem{node: n, known: true}).prefer }

func (t *tandem) prefer(s *State, q Question, _ *rand.Rand) []int {
	if !t.known {
		q.Request = guess(q)
	}
	choice, err := placement.Choose(t.node.Tree, q.Preference(s))
	if err != nil {
		return nil
	}
	return q.Chosen(s, choice)
}

// guess returns the expected request of an unknown container: its devices of the other kind or, without any,
// the same number as in the question.
func guess(q Question) Request {
	n := [2]int{q.Size, q.Size}
	if other := q.Kind.Other(); len(q.Allocated[other]) > 0 {
		n[other] = len(q.Allocated[other])
	}
	return Request{GPUs: n[GPU], VFs: n[VF]}
}

// best caches the best scores of sets of GPUs. It is not safe for concurrent use.
type best struct {
	scores machine.Scores
	memo   map[setKey]int
}

// setKey is the key of a score: the GPUs as a set of bits by index, and the size.
type setKey struct {
	gpus string
	size int
}

func newBest(s machine.Scores) *best { return &best{s, map[setKey]int{}} }

// of returns the best score of size of the GPUs.
func (b *best) of(gpus []int, size int) int {
	bits := make([]byte, (len(b.scores)+7)/8)
	for _, i := range gpus {
		bits[i/8] |= 1 << (i % 8)
	}
	key := setKey{string(bits), size}
	score, ok := b.memo[key]
	if !ok {
		slices.Sort(gpus)
		score, _ = b.scores.Nearest(gpus, size)
		b.memo[key] = score
	}
	return score
}
