// SPDX-License-Identifier: Apache-2.0

package placement

import "math"

// maxSteps limits the work of one choice: the number of combined pairs of table entries, at 10 to 40 ns each,
// after which the solver gives up the proof of optimality. The fallback takes at most half as many steps.
// This keeps a choice below 30 ms on a server's core for up to 64 GPUs and 1016 VFs (see BenchmarkWorst);
// with thousands of devices building the tree takes longer. Requests of eight GPUs take hundreds of steps.
// Requests that exceed the limit have many devices that are mostly far from any partner, and halves of which
// neither is a multiple of the other.
const maxSteps = 800_000

// solver finds the cheapest choice by dynamic programming over the tree of places: for every place it keeps
// the best way to take each number of GPUs, VFs and extras from below it. The costs of disjoint places add
// up, and the number of pairs below a place depends only on these numbers, because on a tree it is optimal to
// form every pair as low as possible.
//
// # Algorithm
//
// The PCI tree is reduced to the places where paths of the request's devices meet: cards, groups (devices
// below one switch), bridges, root complexes, NUMA nodes. On a tree it is optimal to form every pair as low
// as possible. The number of pairs below a place therefore depends only on the numbers of GPUs and VFs taken
// below it. A table for each place holds the cheapest way for each number of GPUs, VFs and extras (devices
// with one additional partner), and the tables of sibling places combine into the table of their parent. All
// criteria except the last are sums over places; the fifth is a sum if links follow the
// tree: no links, links between all GPUs, or links within places. VF indices are assigned last, when the
// number of VFs of each PF is known: it is optimal to take one index after another, each from all PFs that
// can give it. To keep the tables small, the solver first looks for solutions with the fewest possible pairs
// beyond PIX.
//
// If links do not follow the tree (a cube mesh, MI250), criterion 5 depends on the individual GPUs. The
// solver then enumerates the sets of GPUs, with the best possible completion as a bound, and solves the pairs
// for sets within the bound.
//
// # Several resources
//
// Devices of several resources of one kind (partition types, VFs of several rails or pools) are equivalent in
// all of the above: the devices below a switch, the VFs of a PF and the remaining devices are sums over the
// resources. The number taken from each resource is fixed by the request. The tables are therefore indexed by
// the number of devices of every resource, not only by their sum, and the solver first finds, PF by PF, the
// VFs that a group can give for each such number. A part of the tree has to give at least the devices that
// the rest of the tree lacks. This keeps the tables small in the common case of a rail with one VF of each
// PF: every part gives the VFs that only this part has.
type solver struct {
	tables
	cards []*place // in the order of the tree
	most  int      // steps of one attempt
}

// newSolver returns a solver for a tree of places with a limit of steps for each attempt; the root is nil
// if no device may be chosen.
func newSolver(root *place, wanted shares, steps int) solver {
	s := solver{most: steps}
	s.shares, s.root = wanted, root
	if root != nil {
		s.cards = root.numberCards(make([]*place, 0, root.GPUs.Most))
	}
	return s
}

// Solve finds the choice and marks it in the places, down to the number of devices from each pool. It reports
// whether the choice is proven optimal, and whether the room and the step limit sufficed for any choice.
// Resources are those of a kind with several requested resources, nil for another kind. Links connect cards
// with devices to choose from; Solve reorders them.
func (s *solver) Solve(gpus, vfs []resource, links []link) (optimal, ok bool) {
	if len(gpus)+len(vfs) > 0 {
		s.most /= 2 // the other half is for choosing one resource after another
		s.mixing, ok = newMixing(gpus, vfs)
		if !ok || !offerAll(s.root, &s.mixing, s.most) {
			return false, false
		}
	}
	irregular := measureLinks(s.root, s.cards, links)
	optimal, ok = s.findChoice()
	if !ok {
		return false, false
	}
	if irregular != nil {
		optimal = refineChoice(&s.tables, s.cards, irregular, min(s.most, maxSteps/2)) && optimal
	}
	s.mixing.countTaken(s.root)
	return optimal, true
}

// findChoice finds a choice and marks it in the places. It reports whether the choice is proven optimal, and
// whether a choice exists: always, unless several resources of one kind exceed the step limit.
func (s *solver) findChoice() (optimal, ok bool) {
	found := s.deepenLimit()
	further := s.most / 4 // for a second attempt, and for the search after it
	if found || s.mixing.isAny() {
		s.most = max(s.budget, further)
		return found, found
	}
	s.most = further
	s.loose = true
	found = s.deepenLimit()
	s.loose = false
	if !found {
		s.root.spreadDevices(&s.shares, s.GPUs, s.VFs)
	}
	s.root.pinCounts(true)
	s.budget = math.MaxInt
	s.solveLimit(s.Pairs)
	s.root.pinCounts(false)
	return false, true
}

// deepenLimit solves with an increasing limit on the pairs beyond PIX, beginning with the minimum: a tight
// limit leaves few combinations, and a choice found under a limit is optimal, because every better choice is
// within the same limit.
func (s *solver) deepenLimit() bool {
	s.budget = s.most
	s.root.boundPIX(&s.shares)
	fewest := max(s.Pairs-s.root.mostPIX, 0)
	for further := 0; ; further = 2*further + 1 {
		limit := min(fewest+further, s.Pairs)
		if _, ok := s.solveLimit(limit); ok || s.budget < 0 || limit == s.Pairs {
			return ok
		}
	}
}

// solveLimit finds the best choice with at most limit pairs beyond PIX and marks it in the places. It reports
// whether such a choice exists and was found within the budget.
func (t *tables) solveLimit(limit int) (cost, bool) {
	t.limit = limit
	all := t.buildTable(t.root)
	if t.budget < 0 {
		return cost{}, false
	}
	for i := range all {
		e := &all[i]
		if e.GPUs == t.GPUs && e.VFs == t.VFs && e.mix == t.mixing.wanted && (t.loose || e.Extras == t.extras) {
			t.root.markEntry(e)
			return e.cost, true
		}
	}
	return cost{}, false
}

// markEntry marks an entry of a place and the entries that it consists of.
func (n *place) markEntry(e *entry) {
	n.Chosen = e.counts
	if n.Kind == kindGroup { // the table of a group is based on the table of its cards
		e = e.before
	}
	for k := len(n.Children) - 1; k > 0; k-- {
		n.Children[k].markEntry(e.last)
		e = e.before
	}
	if len(n.Children) > 0 {
		n.Children[0].markEntry(e)
	}
}

// stepsPerPlace is the fixed cost of a place, in steps.
const stepsPerPlace = 8

// buildTable builds the table of a place.
func (t *tables) buildTable(n *place) table {
	t.budget -= stepsPerPlace
	if n.Kind == kindCard {
		return t.cardTable(n)
	}
	var made table
	var part content // of the children merged until now
	for i, child := range n.Children {
		last := t.buildTable(child)
		part.Add(child.content)
		if i == 0 {
			made = last
		} else {
			m := merge{tables: t, place: n, part: part, before: made, last: last}
			if t.mixing.isAny() {
				m.floor = n.floors[i]
			}
			made = m.combineAll()
		}
	}
	switch n.Kind {
	case kindGroup:
		return t.groupTable(n, made)
	case kindNode:
		breakNode(n, made)
	}
	return made
}

// pinCounts restricts the search to the marked counts, or removes the restriction.
func (n *place) pinCounts(on bool) {
	n.fixedGPUs, n.fixedVFs = anyNumber, anyNumber
	if on && n.Kind == kindCard {
		n.fixedGPUs = n.Chosen.GPUs
	} else if on && n.Kind == kindGroup {
		n.fixedVFs = n.Chosen.VFs
	}
	for _, child := range n.Children {
		child.pinCounts(on)
	}
}

// spreadDevices marks a choice without search: it fills one child after another with GPUs and VFs that form
// PIX pairs, then with the remaining devices. It is used only for machines far larger than existing ones.
func (n *place) spreadDevices(s *shares, gpus, vfs int) {
	n.Chosen = counts{GPUs: gpus, VFs: vfs}
	for _, child := range n.Children {
		child.Chosen = counts{GPUs: child.GPUs.Held, VFs: child.VFs.Held}
		gpus -= child.GPUs.Held
		vfs -= child.VFs.Held
	}
	if n.Kind == kindGroup { // the children are cards
		vfs = 0
	}
	for _, pairsOnly := range []bool{true, false} {
		for _, child := range n.Children {
			g, v := min(gpus, child.GPUs.Most-child.Chosen.GPUs), min(vfs, child.VFs.Most-child.Chosen.VFs)
			if pairsOnly && s.Pairs > 0 && n.Kind != kindGroup {
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
		child.spreadDevices(s, child.Chosen.GPUs, child.Chosen.VFs)
	}
}
