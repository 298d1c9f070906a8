package solver

import (
	"math"

	"github.com/tandem-k8s/tandem/topology"
)

// run finds a choice and marks it in the places. It reports whether the choice is proven the best, and
// whether there is one: there is, unless several resources of a kind take too long.
func (s *Solver) run() (optimal, ok bool) {
	found := s.deepen()
	further := s.most / 4 // for another attempt, and for the search after it
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

// deepen solves with ever more pairs beyond PIX allowed, from the fewest that there can be: a tight limit
// leaves little to try, and a choice found under it is the best of all, since every better one is within the
// limit too.
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

// boundPIX sets for every place how many PIX pairs it can have at most: what each of its switches could make
// if the others let it.
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

// pin makes the counts that are marked the only ones to try, or all of them free again.
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

// spread marks some choice at once, without search: it fills child after child with GPUs and VFs that make
// PIX pairs there, then with what is still wanted. It is for machines beyond any that exists.
func (n *Place) spread(s *Shares, gpus, vfs int) {
	n.Chosen = Counts{GPUs: gpus, VFs: vfs}
	for _, child := range n.Children {
		child.Chosen = Counts{GPUs: child.GPUs.Held, VFs: child.VFs.Held}
		gpus -= child.GPUs.Held
		vfs -= child.VFs.Held
	}
	if n.Kind == Group { // its children are cards
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
