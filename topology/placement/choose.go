package placement

import "math"

// maxSteps bounds the work on one choice: so many pairs of table entries are combined before it is given up to find the best choice
// for sure. It stands for some ten milliseconds. Requests that need more have many devices, most of them far from any partner,
// and halves of which none is a multiple of the other.
const maxSteps = 400_000

// run finds a choice and marks it in the places. It reports whether the choice is proven the best.
func (s *solver) run() (cost, bool) {
	if c, ok := s.deepen(); ok {
		return c, true
	}
	s.loose = true
	_, ok := s.deepen()
	s.loose = false
	if !ok {
		s.root.spread(&s.shares, s.gpus, s.vfs)
	}
	s.root.pin(true)
	s.budget = math.MaxInt
	c, _ := s.solve(s.pairs)
	s.root.pin(false)
	return c, false
}

// deepen solves with ever more pairs beyond PIX allowed, from the fewest that there can be: a tight limit leaves little to try, and a
// choice found under it is the best of all, since every better one is within the limit too.
func (s *solver) deepen() (cost, bool) {
	s.budget = maxSteps
	for limit := s.pairs - s.root.mostPIX(&s.shares); ; limit = min(2*limit+1, s.pairs) {
		c, ok := s.solve(limit)
		if ok || s.budget < 0 || limit == s.pairs {
			return c, ok
		}
	}
}

// mostPIX bounds how many pairs can be PIX: what each switch could make if the others let it.
func (n *place) mostPIX(s *shares) int {
	if n.kind != groupPlace {
		sum := 0
		for _, child := range n.children {
			sum += child.mostPIX(s)
		}
		return min(sum, s.pairs)
	}
	if n.depth == 0 {
		return 0
	}
	g, v := min(n.gpus.most, s.gpus), min(n.vfs.most, s.vfs)
	ofGPUs, ofVFs := s.units(g, v, s.mostExtras(g, v))
	return min(ofGPUs, ofVFs)
}

// pin makes the counts that are marked the only ones to try, or all of them free again.
func (n *place) pin(on bool) {
	n.fixed = -1
	if on && n.kind == cardPlace {
		n.fixed = n.chosen.gpus
	} else if on && n.kind == groupPlace {
		n.fixed = n.chosen.vfs
	}
	for _, child := range n.children {
		child.pin(on)
	}
}

// spread marks some choice at once, without search: it fills child after child with GPUs that have VFs beside them, then with what
// is still wanted. It is for machines beyond any that exists.
func (n *place) spread(s *shares, gpus, vfs int) {
	n.chosen = entry{gpus: gpus, vfs: vfs}
	for _, child := range n.children {
		child.chosen = entry{gpus: child.gpus.held, vfs: child.vfs.held}
		gpus -= child.gpus.held
		vfs -= child.vfs.held
	}
	if n.kind == groupPlace { // its children are cards
		vfs = 0
	}
	take := func(child *place, g, v int) {
		child.chosen.gpus += g
		child.chosen.vfs += v
		gpus -= g
		vfs -= v
	}
	for _, child := range n.children {
		g, v := child.room(gpus, vfs)
		if s.perVF > 0 && n.kind != groupPlace {
			g, v = min(g, v*s.perVF/max(s.perGPU, 1)), min(v, g*max(s.perGPU, 1)/s.perVF)
		}
		take(child, g, v)
	}
	for _, child := range n.children {
		g, v := child.room(gpus, vfs)
		take(child, g, v)
	}
	for _, child := range n.children {
		child.spread(s, child.chosen.gpus, child.chosen.vfs)
	}
}

// room is how much of what is wanted a place can still give beyond what is marked.
func (n *place) room(gpus, vfs int) (int, int) {
	return min(gpus, n.gpus.most-n.chosen.gpus), min(vfs, n.vfs.most-n.chosen.vfs)
}
