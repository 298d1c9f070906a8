package solver

import (
	"math"
	"slices"
)

// cardSet is a set of GPUs, by card, and how near they are to each other and to all others.
type cardSet struct {
	near   []int64 // from card to card, a square
	rest   []Tally // GPUs of a card and those after it
	pull   int64   // how near the nearest two GPUs are
	counts []int   // the set at hand: how many from each card
	reach  []int64 // by card: sum over the set at hand of how near it is
}

func newCardSet(cards []*Place, links []Link) cardSet {
	n := len(cards)
	c := cardSet{
		near: make([]int64, n*n), rest: make([]Tally, n+1), pull: math.MaxInt64,
		counts: make([]int, n), reach: make([]int64, n),
	}
	for a := range cards {
		for b := range a {
			c.near[a*n+b] = meeting(cards[a], cards[b]).apart(noLink)
		}
	}
	for _, l := range links {
		c.near[l.b*n+l.a] = meeting(cards[l.a], cards[l.b]).apart(l.link)
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

// meeting is the place where the paths of two cards to the root meet.
func meeting(a, b *Place) *Place {
	n := a.Parent
	for b.cardLow < n.cardLow || b.cardLow >= n.cardHigh {
		n = n.Parent
	}
	return n
}

// put makes a set the one at hand.
func (c *cardSet) put(counts []int) {
	clear(c.counts)
	clear(c.reach)
	for i, n := range counts {
		c.take(i, n)
	}
}

// take adds GPUs of a card to the set at hand, or takes them away again.
func (c *cardSet) take(i, n int) {
	c.counts[i] += n
	near := c.near[i*len(c.counts):][:len(c.counts)]
	for j := range c.reach {
		c.reach[j] += int64(n) * near[j]
	}
}

// locality makes a set the one at hand, and says how near its GPUs are to each other.
func (c *cardSet) locality(counts []int) int64 {
	c.put(counts)
	sum := int64(0)
	for i, n := range counts {
		sum += int64(n) * c.reach[i]
	}
	return sum / 2 // every pair was counted from both ends
}

// bound is the least locality that a set can have when the missing GPUs come from cards from i on: each is at
// least as far from the set at hand as the nearest of these cards, and from the other missing ones as the
// nearest two GPUs of all.
func (c *cardSet) bound(i, missing int, locality int64) int64 {
	if missing == 0 {
		return locality
	}
	m := int64(missing)
	return locality + m*slices.Min(c.reach[i:]) + m*(m-1)/2*c.pull
}
