package solver

import (
	"math"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// MaxCards bounds the cards that are searched for the nearest set: their distances are kept in a square. The
// largest machine with links that follow no order of the tree has 16.
const MaxCards = 256

// search finds the set of GPUs that are nearest to each other, among those with the best pairs. The tables
// cannot do that where links follow no order of the tree, as in a cube mesh: how near two GPUs are depends on
// which two they are. So it goes through the sets, leaves out what cannot be better than the best so far, and
// solves the VFs of the rest.
type search struct {
	*Solver
	cardSet
	left int // steps left

	allowed map[share]bool // filled as it is asked
	beyond  int            // most pairs beyond PIX that are of interest

	best       cost
	bestCounts []int
	bestOrder  []int
	order      []int    // room for another
	queue      []*Place // room to work in
}

// share is a number of GPUs from a group.
type share struct {
	group *Place
	gpus  int
}

// refine improves the choice that is marked in the places and marks the result. It reports whether that is
// the best of all sets, provided that the choice it began with has the best pairs.
func (s *Solver) refine(links []Link) bool {
	if len(s.cards) > MaxCards {
		return false
	}
	f := &search{
		Solver: s, cardSet: newCardSet(s.cards, links), left: min(s.most, MaxSteps/2),
		allowed: map[share]bool{}, beyond: s.limit,
	}
	start := make([]int, len(s.cards))
	for i, card := range s.cards {
		start[i] = card.Chosen.GPUs
	}
	f.best = f.worst()
	if !f.try(start, f.locality(start)) {
		return false // too large even with the GPUs given
	}
	f.exchange()
	f.put(make([]int, len(s.cards)))
	complete := f.visit(0, s.GPUs, 0)
	f.left = math.MaxInt
	f.solveFor(f.bestCounts)
	return complete
}

// worst is a cost above all others.
func (f *search) worst() cost {
	c := cost{termBridges: math.MaxInt64}
	c.addPairs(topology.UNK, int64(f.Pairs))
	return c
}

// solveWithin solves under what is fixed, at the expense of the steps left.
func (f *search) solveWithin() (cost, bool) {
	f.budget = f.left
	c, ok := f.solve(f.beyond)
	f.left = f.budget
	return c, ok
}

// solveFor solves the VFs for a set of GPUs and marks the result.
func (f *search) solveFor(counts []int) (cost, bool) {
	for i, card := range f.cards {
		card.fixedGPUs = counts[i]
	}
	c, ok := f.solveWithin()
	for _, card := range f.cards {
		card.fixedGPUs = anyNumber
	}
	return c, ok
}

// allows reports whether the best pairs and the most pairs left can be had when the group of card i gives as
// many GPUs as in the set at hand. This spares going one by one through the sets that cannot have them.
func (f *search) allows(i int) bool {
	of := share{group: f.cards[i].Parent}
	for j := of.group.cardLow; j < of.group.cardHigh; j++ {
		of.gpus += f.counts[j]
	}
	allowed, known := f.allowed[of]
	if !known {
		of.group.fixedGPUs = of.gpus
		c, ok := f.solveWithin()
		of.group.fixedGPUs = anyNumber
		allowed = ok && slices.Compare(c[:termLocality], f.best[:termLocality]) <= 0
		f.allowed[of] = allowed
	}
	return allowed
}

// try takes a set if it is better than the best so far.
func (f *search) try(counts []int, locality int64) bool {
	c, ok := f.solveFor(counts)
	if !ok {
		return false
	}
	c[termLocality] = locality
	d := c.compare(&f.best)
	if d > 0 {
		return false
	}
	f.order, f.queue = f.root.appendOrder(f.order[:0], f.queue)
	if d == 0 && slices.Compare(f.order, f.bestOrder) >= 0 {
		return false
	}
	f.best, f.beyond = c, c.beyondPIX()
	f.order, f.bestOrder = f.bestOrder, f.order
	f.bestCounts = append(f.bestCounts[:0], counts...)
	return true
}

// exchange swaps a GPU of the best set for another as long as that makes it better.
func (f *search) exchange() {
	for better := true; better; {
		better = false
		f.put(f.bestCounts)
		for out := 0; out < len(f.cards) && !better; out++ {
			for in := 0; in < len(f.cards) && !better && f.left > 0; in++ {
				better = f.swap(out, in)
			}
		}
	}
}

// swap tries the set at hand with one GPU taken from another card.
func (f *search) swap(out, in int) bool {
	f.left--
	locality := f.best[termLocality] - f.reach[out] + f.reach[in] - f.near[out*len(f.cards)+in]
	if out == in || f.counts[out] == f.cards[out].GPUs.Held || f.counts[in] == f.cards[in].GPUs.Most ||
		locality > f.best[termLocality] {
		return false
	}
	f.counts[out]--
	f.counts[in]++
	better := f.allows(out) && f.allows(in) && f.try(f.counts, locality)
	f.counts[out]++
	f.counts[in]--
	return better
}

// visit tries all sets that take the cards from i on into the set at hand, except those that cannot be better
// than the best. It reports whether it got through before the steps were spent.
func (f *search) visit(i, missing int, locality int64) bool {
	if f.left -= 1 + len(f.cards)/4; f.left < 0 {
		return false
	}
	if i > 0 && (i == len(f.cards) || f.cards[i].Parent != f.cards[i-1].Parent) && !f.allows(i-1) {
		return f.left >= 0
	}
	if i == len(f.cards) {
		f.try(f.counts, locality)
		return f.left >= 0
	}
	if f.bound(i, missing, locality) > f.best[termLocality] {
		return true
	}
	card, rest := f.cards[i].GPUs, f.rest[i+1]
	for n := min(missing-rest.Held, card.Most); n >= max(card.Held, missing-rest.Most); n-- {
		f.take(i, n)
		done := f.visit(i+1, missing-n, locality+int64(n)*f.reach[i])
		f.take(i, -n)
		if !done {
			return false
		}
	}
	return true
}

// appendOrder describes what is marked for comparing answers that cost the same: level by level from the root
// down, from the highest address to the lowest, how many GPUs, VFs and extras are taken, and of which
// resources. The least is the answer with the lowest addresses. The queue is room to work in, and returned
// for the next time.
func (n *Place) appendOrder(order []int, queue []*Place) ([]int, []*Place) {
	queue = append(queue[:0], n)
	for i := 0; i < len(queue); i++ {
		for _, child := range slices.Backward(queue[i].Children) {
			order = append(order, child.Chosen.GPUs, child.Chosen.VFs, child.Chosen.Extras, int(child.Chosen.mix))
			queue = append(queue, child)
		}
	}
	return order, queue
}
