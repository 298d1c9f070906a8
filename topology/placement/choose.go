package placement

import (
	"math"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// maxSteps bounds the work on one choice: so many pairs of table entries are combined, at 5 to 20 ns each, before it is given up to find
// the best choice for sure. What is done instead takes half as many again at most. That keeps a choice below 20 ms on a server's core
// for up to 64 GPUs and 1016 VFs, see BenchmarkWorst; with thousands of devices it takes longer to put them in their places. Requests of
// eight GPUs take hundreds of steps. Those that need more than the bound want many devices that are mostly far from any partner, in
// halves of which none is a multiple of the other.
const maxSteps = 600_000

// run finds a choice and marks it in the places. It reports whether the choice is proven the best, and whether there is one: there is,
// unless several resources of a kind take too long.
func (s *solver) run() (optimal, ok bool) {
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
		s.root.spread(&s.shares, s.gpus, s.vfs)
	}
	s.root.pin(true)
	s.budget = math.MaxInt
	s.solve(s.pairs)
	s.root.pin(false)
	return false, true
}

// deepen solves with ever more pairs beyond PIX allowed, from the fewest that there can be: a tight limit leaves little to try, and a
// choice found under it is the best of all, since every better one is within the limit too.
func (s *solver) deepen() bool {
	s.budget = s.most
	s.root.boundPIX(&s.shares)
	fewest := max(s.pairs-min(s.root.mostPIX, s.mostPIX()), 0)
	for further := 0; ; further = 2*further + 1 {
		limit := min(fewest+further, s.pairs)
		if _, ok := s.solve(limit); ok || s.budget < 0 || limit == s.pairs {
			return ok
		}
	}
}

// boundPIX sets for every place how many PIX pairs it can have at most: what each of its switches could make if the others let it.
func (n *place) boundPIX(s *shares) {
	n.mostPIX = 0
	for _, child := range n.children {
		child.boundPIX(s)
		n.mostPIX += child.mostPIX
	}
	if n.kind == groupPlace && n.level == topology.PIX {
		g, v := min(n.gpus.most, s.gpus), min(n.vfs.most, s.vfs)
		n.mostPIX = min(s.units(g, v, s.mostExtras(g, v)))
	}
}

// mostPIX bounds the PIX pairs that all switches make together: no more devices of the smaller half than are wanted take part.
func (s *solver) mostPIX() int {
	each, wanted := max(s.perGPU, s.perVF)+min(s.extras, 1), min(s.gpus, s.vfs)
	pix := 0
	var rests []int // what one more device makes where the partners run out
	s.root.eachSwitch(func(n *place) {
		few, many := min(n.gpus.most, s.gpus), min(n.vfs.most, s.vfs)
		if s.gpus > s.vfs {
			few, many = many, few
		}
		served := min(few, many/max(each, 1), wanted)
		wanted -= served
		pix += served * each
		if served < few {
			rests = append(rests, min(many-served*each, each))
		}
	})
	slices.Sort(rests)
	for _, rest := range rests[max(len(rests)-wanted, 0):] {
		pix += rest
	}
	return pix
}

// eachSwitch calls f with every group whose devices are PIX to each other.
func (n *place) eachSwitch(f func(*place)) {
	for _, child := range n.children {
		child.eachSwitch(f)
	}
	if n.kind == groupPlace && n.level == topology.PIX {
		f(n)
	}
}

// pin makes the counts that are marked the only ones to try, or all of them free again.
func (n *place) pin(on bool) {
	n.fixedGPUs, n.fixedVFs = anyNumber, anyNumber
	if on && n.kind == cardPlace {
		n.fixedGPUs = n.chosen.gpus
	} else if on && n.kind == groupPlace {
		n.fixedVFs = n.chosen.vfs
	}
	for _, child := range n.children {
		child.pin(on)
	}
}

// spread marks some choice at once, without search: it fills child after child with GPUs and VFs that make PIX pairs there, then with
// what is still wanted. It is for machines beyond any that exists.
func (n *place) spread(s *shares, gpus, vfs int) {
	n.chosen = counts{gpus: gpus, vfs: vfs}
	for _, child := range n.children {
		child.chosen = counts{gpus: child.gpus.held, vfs: child.vfs.held}
		gpus -= child.gpus.held
		vfs -= child.vfs.held
	}
	if n.kind == groupPlace { // its children are cards
		vfs = 0
	}
	for _, pairsOnly := range []bool{true, false} {
		for _, child := range n.children {
			g, v := min(gpus, child.gpus.most-child.chosen.gpus), min(vfs, child.vfs.most-child.chosen.vfs)
			if pairsOnly && s.pairs > 0 && n.kind != groupPlace {
				g, v = min(g, max(child.mostPIX/s.perGPU-child.chosen.gpus, 0)), min(v, max(child.mostPIX/s.perVF-child.chosen.vfs, 0))
			}
			child.chosen.gpus += g
			child.chosen.vfs += v
			gpus -= g
			vfs -= v
		}
	}
	for _, child := range n.children {
		child.spread(s, child.chosen.gpus, child.chosen.vfs)
	}
}
