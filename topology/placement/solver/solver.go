// SPDX-License-Identifier: Apache-2.0

package solver

import "math"

// MaxSteps limits the work of one choice: the number of combined pairs of table entries, at 10 to 40 ns each,
// after which the solver gives up the proof of optimality. The fallback takes at most half as many steps.
// This keeps a choice below 20 ms on a server's core for up to 64 GPUs and 1016 VFs (see BenchmarkWorst);
// with thousands of devices building the tree takes longer. Requests of eight GPUs take hundreds of steps.
// Requests that exceed the limit have many devices that are mostly far from any partner, and halves of which
// neither is a multiple of the other.
const MaxSteps = 800_000

// Solver finds the cheapest choice by dynamic programming over the tree of places: for every place it keeps
// the best way to take each number of GPUs, VFs and extras from below it. The costs of disjoint places add
// up, and the number of pairs below a place depends only on these numbers, because on a tree it is optimal to
// form every pair as low as possible.
type Solver struct {
	tables
	cards []*Place // in the order of the tree
	most  int      // steps of one attempt
}

// New returns a solver for a tree of places with a limit of steps for each attempt; the root is nil if no
// device may be chosen.
func New(root *Place, wanted Shares, steps int) Solver {
	s := Solver{most: steps}
	s.Shares, s.root, s.making = wanted, root, make([]entry, 0, 32)
	if root != nil {
		s.entries = make([]entry, 0, 256)
		s.cards = root.numberCards(make([]*Place, 0, root.GPUs.Most))
	}
	return s
}

// Solve finds the choice and marks it in the places, down to the number of devices from each pool. It reports
// whether the choice is proven optimal, and whether the room and the step limit sufficed for any choice.
// Resources are those of a kind with several requested resources, nil for another kind. Links connect cards
// with devices to choose from; Solve reorders them.
func (s *Solver) Solve(gpus, vfs []Resource, links []Link) (optimal, ok bool) {
	if len(gpus)+len(vfs) > 0 {
		s.most /= 2 // the other half is for choosing one resource after another
		if s.mixing, ok = newMixing(gpus, vfs); !ok || !offerAll(s.root, &s.mixing, s.most) {
			return false, false
		}
	}
	irregular := measure(s.root, s.cards, links)
	if optimal, ok = s.run(); !ok {
		return false, false
	}
	if irregular != nil {
		optimal = refine(&s.tables, s.cards, irregular, min(s.most, MaxSteps/2)) && optimal
	}
	s.mixing.countTaken(s.root)
	return optimal, true
}

// run finds a choice and marks it in the places. It reports whether the choice is proven optimal, and whether
// a choice exists: always, unless several resources of one kind exceed the step limit.
func (s *Solver) run() (optimal, ok bool) {
	found := s.deepen()
	further := s.most / 4 // for a second attempt, and for the search after it
	if found || s.mixing.any() {
		s.most = max(s.budget, further)
		return found, found
	}
	s.most = further
	s.loose = true
	found = s.deepen()
	s.loose = false
	if !found {
		s.root.spread(&s.Shares, s.GPUs, s.VFs)
	}
	s.root.pin(true)
	s.budget = math.MaxInt
	s.solve(s.Pairs)
	s.root.pin(false)
	return false, true
}

// deepen solves with an increasing limit on the pairs beyond PIX, beginning with the minimum: a tight limit
// leaves few combinations, and a choice found under a limit is optimal, because every better choice is within
// the same limit.
func (s *Solver) deepen() bool {
	s.budget = s.most
	s.root.boundPIX(&s.Shares)
	fewest := max(s.Pairs-s.root.mostPIX, 0)
	for further := 0; ; further = 2*further + 1 {
		limit := min(fewest+further, s.Pairs)
		if _, ok := s.solve(limit); ok || s.budget < 0 || limit == s.Pairs {
			return ok
		}
	}
}
