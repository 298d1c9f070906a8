// SPDX-License-Identifier: Apache-2.0

package solver

import (
	"math"
	"slices"
)

// cardSet is a set of GPUs, counted by card, with the GPU distances that the search needs.
type cardSet struct {
	near   []int64 // distance between two cards, a square matrix
	rest   []Tally // GPUs of a card and all later cards
	pull   int64   // the smallest distance of two GPUs
	counts []int   // the current set: number of GPUs from each card
	reach  []int64 // by card: sum of its distances to the GPUs of the current set
}

func newCardSet(cards []*Place, links []Link) cardSet {
	n := len(cards)
	c := cardSet{
		near: make([]int64, n*n), rest: make([]Tally, n+1), pull: math.MaxInt64,
		counts: make([]int, n), reach: make([]int64, n),
	}
	for a := range cards {
		for b := range a {
			c.near[a*n+b] = meeting(cards[a], cards[b]).distance(noLink)
		}
	}
	for _, l := range links {
		c.near[l.b*n+l.a] = meeting(cards[l.a], cards[l.b]).distance(l.link)
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

// meeting returns the lowest place above both cards.
func meeting(a, b *Place) *Place {
	n := a.Parent
	for b.cardLow < n.cardLow || b.cardLow >= n.cardHigh {
		n = n.Parent
	}
	return n
}

// put makes counts the current set.
func (c *cardSet) put(counts []int) {
	clear(c.counts)
	clear(c.reach)
	for i, n := range counts {
		c.take(i, n)
	}
}

// take adds n GPUs of card i to the current set; a negative n removes them.
func (c *cardSet) take(i, n int) {
	c.counts[i] += n
	near := c.near[i*len(c.counts):][:len(c.counts)]
	for j := range c.reach {
		c.reach[j] += int64(n) * near[j]
	}
}

// locality makes counts the current set and returns the sum of the distances of its GPUs.
func (c *cardSet) locality(counts []int) int64 {
	c.put(counts)
	sum := int64(0)
	for i, n := range counts {
		sum += int64(n) * c.reach[i]
	}
	return sum / 2 // the sum contains each pair twice
}

// bound returns a lower bound for the locality of a set whose missing GPUs come from the cards from i on. The
// distance of a missing GPU to the current set is at least that of the nearest of these cards; the distance
// of two missing GPUs is at least the smallest distance of any two GPUs.
func (c *cardSet) bound(i, missing int, locality int64) int64 {
	if missing == 0 {
		return locality
	}
	m := int64(missing)
	return locality + m*slices.Min(c.reach[i:]) + m*(m-1)/2*c.pull
}
