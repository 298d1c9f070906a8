// SPDX-License-Identifier: Apache-2.0

package solver

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
	Shares
	mixing mixing
	root   *Place
	cards  []*Place // in the order of the tree
	most   int      // steps of one attempt
	limit  int      // maximum number of pairs beyond PIX
	loose  bool     // extras follow the VFs instead of being tried in all numbers
	budget int      // remaining steps; negative after the search was given up

	entries []entry // all tables, kept for tracing back
	making  []entry // the table under construction
	room    []int32 // scratch space for its slots
}

// New returns a solver for a tree of places with a limit of steps for each attempt; the root is nil if no
// device may be chosen.
func New(root *Place, wanted Shares, steps int) Solver {
	s := Solver{Shares: wanted, root: root, most: steps, making: make([]entry, 0, 32)}
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
	if !s.mix(gpus, vfs) {
		return false, false
	}
	irregular := s.measure(links)
	if optimal, ok = s.run(); !ok {
		return false, false
	}
	if irregular != nil {
		optimal = s.refine(irregular) && optimal
	}
	s.countTaken(s.root)
	return optimal, true
}
