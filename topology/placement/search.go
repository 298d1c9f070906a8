package placement

import (
	"math"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// maxCards bounds the cards that are searched for the nearest set: their distances are kept in a square. The largest machine with
// links that follow no order of the tree has 16.
const maxCards = 256

// search finds the set of GPUs that are nearest to each other, among those with the best pairs. The tables cannot do that where links
// follow no order of the tree, as in a cube mesh: how near two GPUs are depends on which two they are. So it goes through the
// sets, leaves out what cannot be better than the best so far, and solves the VFs of the rest.
type search struct {
	*solver
	cards  []*place
	near   []int64 // from card to card, a square
	rest   []tally // GPUs of a card and those after it
	pull   int64   // how near the nearest two GPUs are
	counts []int   // the set at hand: how many from each card
	reach  []int64 // by card: sum over the set at hand of how near it is
	left   int     // steps left

	allowed map[share]bool // filled as it is asked
	beyond  int            // most pairs beyond PIX that are of interest

	best       cost
	bestCounts []int
	bestOrder  []int
	order      []int    // room for another
	queue      []*place // room to work in
}

// share is a number of GPUs from a group.
type share struct {
	group *place
	gpus  int
}

// refine improves the choice that is marked in the places and marks the result. It reports whether that is the best of all sets,
// provided that the choice it began with has the best pairs.
func (s *solver) refine(cards []*place, links []linked) bool {
	if len(cards) > maxCards {
		return false
	}
	f := newSearch(s, cards, links)
	start := make([]int, len(cards))
	for i, card := range cards {
		start[i] = card.chosen.gpus
	}
	f.best = f.worst()
	if !f.try(start, f.locality(start)) {
		return false // too large even with the GPUs given
	}
	f.exchange()
	f.set(make([]int, len(cards)))
	complete := f.visit(0, s.gpus, 0)
	f.left = math.MaxInt
	f.solveFor(f.bestCounts)
	return complete
}

func newSearch(s *solver, cards []*place, links []linked) *search {
	n := len(cards)
	f := &search{
		solver: s, cards: cards, near: make([]int64, n*n), rest: make([]tally, n+1), pull: math.MaxInt64,
		counts: make([]int, n), reach: make([]int64, n), left: s.most, allowed: map[share]bool{}, beyond: s.limit,
	}
	for a := range cards {
		for b := range a {
			f.near[a*n+b] = meeting(cards[a], cards[b]).apart(noLink)
		}
	}
	for _, l := range links {
		f.near[l.b*n+l.a] = meeting(cards[l.a], cards[l.b]).apart(l.link)
	}
	for a := n - 1; a >= 0; a-- {
		f.rest[a] = f.rest[a+1]
		f.rest[a].add(cards[a].gpus)
		if cards[a].gpus.most > 1 {
			f.pull = 0
		}
		for b := range a {
			f.near[b*n+a] = f.near[a*n+b]
			f.pull = min(f.pull, f.near[a*n+b])
		}
	}
	return f
}

// meeting is the place where the paths of two cards to the root meet.
func meeting(a, b *place) *place {
	n := a.parent
	for b.cardLow < n.cardLow || b.cardLow >= n.cardHigh {
		n = n.parent
	}
	return n
}

// worst is a cost above all others.
func (f *search) worst() cost {
	c := cost{termBridges: math.MaxInt64}
	c.addPairs(topology.UNK, int64(f.pairs))
	return c
}

// set makes a set the one at hand.
func (f *search) set(counts []int) {
	clear(f.counts)
	clear(f.reach)
	for i, n := range counts {
		f.take(i, n)
	}
}

// take adds GPUs of a card to the set at hand, or takes them away again.
func (f *search) take(i, n int) {
	f.counts[i] += n
	near := f.near[i*len(f.cards):][:len(f.cards)]
	for j := range f.reach {
		f.reach[j] += int64(n) * near[j]
	}
}

func (f *search) locality(counts []int) int64 {
	f.set(counts)
	sum := int64(0)
	for i, n := range counts {
		sum += int64(n) * f.reach[i]
	}
	return sum / 2 // every pair was counted from both ends
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

// allows reports whether the best pairs and the most pairs left can be had when the group of card i gives as many GPUs as in the set at hand. This
// spares going one by one through the sets that cannot have them.
func (f *search) allows(i int) bool {
	of := share{group: f.cards[i].parent}
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
		f.set(f.bestCounts)
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
	if out == in || f.counts[out] == f.cards[out].gpus.held || f.counts[in] == f.cards[in].gpus.most || locality > f.best[termLocality] {
		return false
	}
	f.counts[out]--
	f.counts[in]++
	better := f.allows(out) && f.allows(in) && f.try(f.counts, locality)
	f.counts[out]++
	f.counts[in]--
	return better
}

// visit tries all sets that take the cards from i on into the set at hand, except those that cannot be better than the best. It reports
// whether it got through before the steps were spent.
func (f *search) visit(i, missing int, locality int64) bool {
	if f.left -= 1 + len(f.cards)/4; f.left < 0 {
		return false
	}
	if i > 0 && (i == len(f.cards) || f.cards[i].parent != f.cards[i-1].parent) && !f.allows(i-1) {
		return f.left >= 0
	}
	if i == len(f.cards) {
		f.try(f.counts, locality)
		return f.left >= 0
	}
	if f.bound(i, missing, locality) > f.best[termLocality] {
		return true
	}
	card, rest := f.cards[i].gpus, f.rest[i+1]
	for n := min(missing-rest.held, card.most); n >= max(card.held, missing-rest.most); n-- {
		f.take(i, n)
		done := f.visit(i+1, missing-n, locality+int64(n)*f.reach[i])
		f.take(i, -n)
		if !done {
			return false
		}
	}
	return true
}

// bound is the least locality that a set can have when the missing GPUs come from cards from i on: each is at least as far from
// the set at hand as the nearest of these cards, and from the other missing ones as the nearest two GPUs of all.
func (f *search) bound(i, missing int, locality int64) int64 {
	if missing == 0 {
		return locality
	}
	m := int64(missing)
	return locality + m*slices.Min(f.reach[i:]) + m*(m-1)/2*f.pull
}
