// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"math"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// maxCards limits the number of cards of the search for the nearest set, which keeps their distances in a
// square matrix. The largest machine with links that do not follow the tree has 16 cards.
const maxCards = 256

// search finds the set of GPUs with the smallest distances among the sets with the best pairs. The tables
// cannot find it if links do not follow the tree, as in a cube mesh: the distance of two GPUs depends on the
// individual GPUs. The search enumerates the sets, skips sets that cannot be better than the current best,
// and solves the VFs of the remaining sets.
type search struct {
	*tables
	cardSet
	cards []*place // in the order of the tree
	left  int      // remaining steps

	allowed map[share]bool // cache, filled on demand
	beyond  int            // maximum number of pairs beyond PIX

	best       cost
	bestCounts []int
	bestOrder  []int
}

// share is a number of GPUs from a group.
type share struct {
	group *place
	gpus  int
}

// refineChoice improves the choice that is marked in the places and marks the result. It reports whether the
// result is the best of all sets, provided that the initial choice has the best pairs.
func refineChoice(t *tables, cards []*place, links []link, steps int) bool {
	if len(cards) > maxCards {
		return false
	}
	f := &search{
		tables: t, cardSet: newCardSet(cards, links), cards: cards, left: steps,
		allowed: map[share]bool{}, beyond: t.limit,
	}
	start := make([]int, len(cards))
	for i, card := range cards {
		start[i] = card.Chosen.GPUs
	}
	f.best = f.worstCost()
	if !f.trySet(start, f.localityOf(start)) {
		return false // too large even with fixed GPUs
	}
	f.exchangeGPUs()
	f.setCounts(make([]int, len(cards)))
	complete := f.visitSets(0, t.GPUs, 0)
	f.left = math.MaxInt
	f.solveFor(f.bestCounts)
	return complete
}

// worstCost returns a cost above all others.
func (f *search) worstCost() cost {
	c := cost{termBridges: math.MaxInt64}
	c.addPairs(topology.UNK, int64(f.Pairs))
	return c
}

// solveWithin solves with the fixed counts and deducts the steps used.
func (f *search) solveWithin() (cost, bool) {
	f.budget = f.left
	c, ok := f.solveLimit(f.beyond)
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

// allowsGroup reports whether the best pairs and the most remaining pairs are possible if the group of card i
// gives the number of GPUs of the current set. This skips many sets at once.
func (f *search) allowsGroup(i int) bool {
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

// trySet accepts a set if it is better than the current best.
func (f *search) trySet(counts []int, locality int64) bool {
	c, ok := f.solveFor(counts)
	if !ok {
		return false
	}
	c[termLocality] = locality
	d := c.compare(&f.best)
	if d > 0 {
		return false
	}
	order := f.root.chosenOrder()
	if d == 0 && slices.Compare(order, f.bestOrder) >= 0 {
		return false
	}
	f.best, f.beyond = c, c.beyondPIX()
	f.bestCounts, f.bestOrder = slices.Clone(counts), order
	return true
}

// exchangeGPUs swaps a GPU of the best set for another GPU as long as that improves the set.
func (f *search) exchangeGPUs() {
	for better := true; better; {
		better = false
		f.setCounts(f.bestCounts)
		for out := 0; out < len(f.cards) && !better; out++ {
			for in := 0; in < len(f.cards) && !better && f.left > 0; in++ {
				better = f.swapCards(out, in)
			}
		}
	}
}

// swapCards tries the current set with one GPU moved from card out to card in.
func (f *search) swapCards(out, in int) bool {
	f.left--
	locality := f.best[termLocality] - f.reach[out] + f.reach[in] - f.near[out*len(f.cards)+in]
	if out == in || f.counts[out] == f.cards[out].GPUs.Held || f.counts[in] == f.cards[in].GPUs.Most ||
		locality > f.best[termLocality] {
		return false
	}
	f.counts[out]--
	f.counts[in]++
	better := f.allowsGroup(out) && f.allowsGroup(in) && f.trySet(f.counts, locality)
	f.counts[out]++
	f.counts[in]--
	return better
}

// visitSets tries all sets that add the cards from i on to the current set, except sets that cannot be better
// than the best. It reports whether it finished within the step limit.
func (f *search) visitSets(i, missing int, locality int64) bool {
	f.left -= 1 + len(f.cards)/4
	if f.left < 0 {
		return false
	}
	if i > 0 && (i == len(f.cards) || f.cards[i].Parent != f.cards[i-1].Parent) && !f.allowsGroup(i-1) {
		return f.left >= 0
	}
	if i == len(f.cards) {
		f.trySet(f.counts, locality)
		return f.left >= 0
	}
	if f.lowerBound(i, missing, locality) > f.best[termLocality] {
		return true
	}
	card, rest := f.cards[i].GPUs, f.rest[i+1]
	for n := min(missing-rest.Held, card.Most); n >= max(card.Held, missing-rest.Most); n-- {
		f.takeGPUs(i, n)
		done := f.visitSets(i+1, missing-n, locality+int64(n)*f.reach[i])
		f.takeGPUs(i, -n)
		if !done {
			return false
		}
	}
	return true
}

// chosenOrder returns a key of the marked choice that orders answers with the same cost: level by level from
// the root down, from the highest address to the lowest, the numbers of GPUs, VFs and extras taken, and their
// resources. The least key belongs to the answer with the lowest addresses.
func (n *place) chosenOrder() (order []int) {
	queue := []*place{n}
	for i := 0; i < len(queue); i++ {
		for _, child := range slices.Backward(queue[i].Children) {
			order = append(order, child.Chosen.GPUs, child.Chosen.VFs, child.Chosen.Extras, int(child.Chosen.mix))
			queue = append(queue, child)
		}
	}
	return order
}

// cardSet is a set of GPUs, counted by card, with the GPU distances that the search needs.
type cardSet struct {
	near   []int64 // distance between two cards, a square matrix
	rest   []tally // GPUs of a card and all later cards
	pull   int64   // the smallest distance of two GPUs
	counts []int   // the current set: number of GPUs from each card
	reach  []int64 // by card: sum of its distances to the GPUs of the current set
}

func newCardSet(cards []*place, links []link) cardSet {
	n := len(cards)
	c := cardSet{
		near: make([]int64, n*n), rest: make([]tally, n+1), pull: math.MaxInt64,
		counts: make([]int, n), reach: make([]int64, n),
	}
	for a := range cards {
		for b := range a {
			c.near[a*n+b] = lowestAbove(cards[a], cards[b]).distanceBy(noLink)
		}
	}
	for _, l := range links {
		c.near[l.b*n+l.a] = lowestAbove(cards[l.a], cards[l.b]).distanceBy(l.link)
	}
	for a := n - 1; a >= 0; a-- {
		c.rest[a] = c.rest[a+1]
		c.rest[a].Add(cards[a].GPUs)
		if cards[a].GPUs.Most > 1 {
			c.pull = 0
		}
		for b := range a {
			c.near[b*n+a] = c.near[a*n+b]
			c.pull = min(c.pull, c.near[a*n+b])
		}
	}
	return c
}

// lowestAbove returns the lowest place above both cards.
func lowestAbove(a, b *place) *place {
	n := a.Parent
	for b.cardLow < n.cardLow || b.cardLow >= n.cardHigh {
		n = n.Parent
	}
	return n
}

// setCounts makes counts the current set.
func (c *cardSet) setCounts(counts []int) {
	clear(c.counts)
	clear(c.reach)
	for i, n := range counts {
		c.takeGPUs(i, n)
	}
}

// takeGPUs adds n GPUs of card i to the current set; a negative n removes them.
func (c *cardSet) takeGPUs(i, n int) {
	c.counts[i] += n
	near := c.near[i*len(c.counts):][:len(c.counts)]
	for j := range c.reach {
		c.reach[j] += int64(n) * near[j]
	}
}

// localityOf makes counts the current set and returns the sum of the distances of its GPUs.
func (c *cardSet) localityOf(counts []int) int64 {
	c.setCounts(counts)
	sum := int64(0)
	for i, n := range counts {
		sum += int64(n) * c.reach[i]
	}
	return sum / 2 // the sum contains each pair twice
}

// lowerBound returns a lower bound for the locality of a set whose missing GPUs come from the cards from i
// on. The distance of a missing GPU to the current set is at least that of the nearest of these cards; the
// distance of two missing GPUs is at least the smallest distance of any two GPUs.
func (c *cardSet) lowerBound(i, missing int, locality int64) int64 {
	if missing == 0 {
		return locality
	}
	m := int64(missing)
	return locality + m*slices.Min(c.reach[i:]) + m*(m-1)/2*c.pull
}
