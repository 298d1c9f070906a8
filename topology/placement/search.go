package placement

import (
	"math"
	"slices"
)

// Bounds of the search among sets of GPUs. They matter only where direct links follow no order of the tree, as in a cube mesh.
const (
	// maxTrials bounds the sets that are solved for their VFs, some microseconds each. The sets of eight GPUs are at most 70.
	maxTrials = 1500
	// maxVisits bounds the parts of sets that are looked at, some tens of nanoseconds each; 16 GPUs have 65,536.
	maxVisits = 150_000
)

// search finds the set of GPUs that are nearest to each other, among those with the best pairs. The tables cannot: how near two GPUs are
// depends on which two they are. So it goes through the sets, nearest first as far as possible, and solves the VFs of each.
type search struct {
	*solver
	cards  []*place
	near   []int64 // from card to card, flat
	counts []int   // taken from each card, in the set at hand
	reach  []int64 // sum over the GPUs in the set at hand, by card
	room   []int   // GPUs that a card and those after it can still give
	pull   int64   // the least locality of two GPUs

	best       cost
	bestCounts []int
	bestOrder  []int
	trials     int
	visits     int
}

// refine improves a choice that is marked in the places, where the locality of GPUs was left out, and marks the result. It reports
// whether all sets were considered.
func (s *solver) refine(cards []*place, links []linked, c cost) bool {
	f := newSearch(s, cards, links)
	for i, card := range cards {
		f.counts[i] = card.chosen.gpus
	}
	c[termLocality] = f.locality(f.counts)
	f.best, f.bestCounts, f.bestOrder = c, slices.Clone(f.counts), s.root.order()
	f.exchange()
	clear(f.counts)
	complete := f.visit(0, s.gpus, 0) && f.trials <= maxTrials
	f.solveFor(f.bestCounts)
	return complete
}

func newSearch(s *solver, cards []*place, links []linked) *search {
	n := len(cards)
	f := &search{solver: s, cards: cards, near: make([]int64, n*n), counts: make([]int, n), reach: make([]int64, n), room: make([]int, n+1)}
	for a := range cards {
		for b := range cards[:a] {
			f.set(a, b, meeting(cards[a], cards[b]).overPCIe())
		}
	}
	for _, l := range links {
		f.set(l.a, l.b, l.near)
	}
	f.pull = math.MaxInt64
	for i := n - 1; i >= 0; i-- {
		f.room[i] = f.room[i+1] + cards[i].gpus.most
		for j := range cards[:i] {
			f.pull = min(f.pull, f.near[i*n+j])
		}
		if cards[i].gpus.most > 1 {
			f.pull = 0
		}
	}
	return f
}

func (f *search) set(a, b int, near int64) {
	f.near[a*len(f.cards)+b], f.near[b*len(f.cards)+a] = near, near
}

// meeting is the place where the paths of two cards to the root meet.
func meeting(a, b *place) *place {
	n := a.parent
	for b.cardLow < n.cardLow || b.cardLow >= n.cardHigh {
		n = n.parent
	}
	return n
}

func (f *search) locality(counts []int) int64 {
	sum := int64(0)
	for a, ca := range counts {
		for b, cb := range counts[:a] {
			sum += int64(ca*cb) * f.near[a*len(counts)+b]
		}
	}
	return sum
}

// solveFor solves the VFs for given numbers of GPUs and marks the result.
func (f *search) solveFor(counts []int) (cost, bool) {
	for i, card := range f.cards {
		card.fixed = counts[i]
	}
	f.budget = maxSteps
	c, ok := f.solve(f.best.beyondPIX())
	for _, card := range f.cards {
		card.fixed = -1
	}
	return c, ok
}

// try takes a set if it is better than the best so far.
func (f *search) try(counts []int, locality int64) bool {
	f.trials++
	if f.trials > maxTrials {
		return false
	}
	c, ok := f.solveFor(counts)
	if !ok {
		return false
	}
	c[termLocality] = locality
	d := c.compare(&f.best)
	if d > 0 {
		return false
	}
	order := f.root.order()
	if d == 0 && slices.Compare(order, f.bestOrder) >= 0 {
		return false
	}
	f.best, f.bestOrder = c, order
	copy(f.bestCounts, counts)
	return true
}

// exchange swaps a GPU of the best set for another as long as that makes it better.
func (f *search) exchange() {
	for better := true; better; {
		better = false
		for out := range f.cards {
			for in := range f.cards {
				if out == in || f.bestCounts[out] <= f.cards[out].gpus.held || f.bestCounts[in] >= f.cards[in].gpus.most {
					continue
				}
				copy(f.counts, f.bestCounts)
				f.counts[out]--
				f.counts[in]++
				if l := f.locality(f.counts); l <= f.best[termLocality] && f.try(f.counts, l) {
					better = true
				}
			}
		}
	}
}

// visit tries all sets that take the cards from i on into the set at hand, except those that cannot be better than the best. It reports
// whether it got through.
func (f *search) visit(i, missing int, locality int64) bool {
	if f.visits++; f.visits > maxVisits {
		return false
	}
	if missing == 0 {
		f.try(f.counts, locality)
		return true
	}
	if f.bound(i, missing, locality) > f.best[termLocality] {
		return true
	}
	card := f.cards[i]
	for take := min(missing, card.gpus.most); take >= max(card.gpus.held, missing-f.room[i+1]); take-- {
		f.take(i, take)
		done := f.visit(i+1, missing-take, locality+int64(take)*f.reach[i])
		f.take(i, -take)
		if !done {
			return false
		}
	}
	return true
}

func (f *search) take(i, n int) {
	f.counts[i] += n
	for j := range f.reach {
		f.reach[j] += int64(n) * f.near[i*len(f.cards)+j]
	}
}

// bound is the least locality that a set can have when the missing GPUs come from cards from i on: each is at least as far from
// the set at hand as the nearest of these cards, and from the other missing ones as the nearest two GPUs of the machine.
func (f *search) bound(i, missing int, locality int64) int64 {
	nearest := int64(math.MaxInt64)
	for j := i; j < len(f.cards); j++ {
		nearest = min(nearest, f.reach[j])
	}
	m := int64(missing)
	return locality + m*nearest + m*(m-1)/2*f.pull
}

// order describes what is marked for comparing answers that cost the same: level by level from the root down, from the highest address
// to the lowest, how many GPUs, VFs and extras are taken. The least is the answer with the lowest addresses.
func (n *place) order() []int {
	var counts []int
	level := []*place{n}
	for len(level) > 0 {
		var below []*place
		for _, p := range level {
			for _, child := range slices.Backward(p.children) {
				counts = append(counts, child.chosen.gpus, child.chosen.vfs, child.chosen.extras)
				below = append(below, child)
			}
		}
		level = below
	}
	return counts
}
