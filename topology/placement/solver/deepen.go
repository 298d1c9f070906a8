// SPDX-License-Identifier: Apache-2.0

package solver

import (
	"math"

	"github.com/tandem-k8s/tandem/topology"
)

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

// boundPIX sets for every place an upper bound of its PIX pairs: the sum of the PIX pairs that each switch
// could have independently of the others.
func (n *Place) boundPIX(s *Shares) {
	n.mostPIX = 0
	for _, child := range n.Children {
		child.boundPIX(s)
		n.mostPIX += child.mostPIX
	}
	if n.Kind == Group && n.Level == topology.PIX {
		g, v := min(n.GPUs.Most, s.GPUs), min(n.VFs.Most, s.VFs)
		n.mostPIX = min(s.units(g, v, s.mostExtras(g, v)))
	}
}

// pin restricts the search to the marked counts, or removes the restriction.
func (n *Place) pin(on bool) {
	n.fixedGPUs, n.fixedVFs = anyNumber, anyNumber
	if on && n.Kind == Card {
		n.fixedGPUs = n.Chosen.GPUs
	} else if on && n.Kind == Group {
		n.fixedVFs = n.Chosen.VFs
	}
	for _, child := range n.Children {
		child.pin(on)
	}
}

// spread marks a choice without search: it fills one child after another with GPUs and VFs that form PIX
// pairs, then with the remaining devices. It is used only for machines far larger than existing ones.
func (n *Place) spread(s *Shares, gpus, vfs int) {
	n.Chosen = Counts{GPUs: gpus, VFs: vfs}
	for _, child := range n.Children {
		child.Chosen = Counts{GPUs: child.GPUs.Held, VFs: child.VFs.Held}
		gpus -= child.GPUs.Held
		vfs -= child.VFs.Held
	}
	if n.Kind == Group { // the children are cards
		vfs = 0
	}
	for _, pairsOnly := range []bool{true, false} {
		for _, child := range n.Children {
			g, v := min(gpus, child.GPUs.Most-child.Chosen.GPUs), min(vfs, child.VFs.Most-child.Chosen.VFs)
			if pairsOnly && s.Pairs > 0 && n.Kind != Group {
				g = min(g, max(child.mostPIX/s.PerGPU-child.Chosen.GPUs, 0))
				v = min(v, max(child.mostPIX/s.PerVF-child.Chosen.VFs, 0))
			}
			child.Chosen.GPUs += g
			child.Chosen.VFs += v
			gpus -= g
			vfs -= v
		}
	}
	for _, child := range n.Children {
		child.spread(s, child.Chosen.GPUs, child.Chosen.VFs)
	}
}
