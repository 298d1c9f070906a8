// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// cost is the cost of a choice, most important term first. Costs compare term by term; less is better. Every
// term is a sum over the places of the tree, so the costs of disjoint parts add up.
type cost [terms]int64

// The terms, in the order of the objective; package placement defines them.
const (
	termNear     = iota // pairs beyond PIX, beyond PXB and beyond C2C, as three numbers of countBits
	termFar             // pairs beyond PHB, beyond NODE and beyond SYS, as three numbers of countBits
	termBridges         // redirected pairs, and bridges crossed by all pairs, as two numbers
	termDegraded        // degraded devices taken
	termStranded        // same-switch pairs that can no longer be made
	termLater           // pairs that can no longer be made when other containers have ended
	termLocality        // GPU to GPU, by links and by PCI Express as two numbers
	termShared          // VFs of the container that share a PF, and that share a NIC, as two numbers
	termCards           // free partitions of cards that are broken
	termSwitches        // free GPUs of switches that are broken
	termNodes           // free GPUs of NUMA nodes that are broken
	termLoad            // VFs of other containers on the same PFs
	termCrowded         // VFs taken from switches with few free VFs
	terms
)

const (
	countBits    = 20 // bits of one number of pairs in termNear and termFar
	bridgesShift = 32 // bits of the bridges in termBridges
	sharedShift  = 32 // bits of the VFs that share a NIC in termShared
)

// compare returns a negative number if c is less than d, term by term.
func (c *cost) compare(d *cost) int {
	for i := range c {
		if c[i] != d[i] {
			if c[i] < d[i] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// beyondPIX returns the number of pairs that are not PIX.
func (c *cost) beyondPIX() int { return int(c[termNear] >> (2 * countBits)) }

// addPairs adds pairs of a level. A pair counts as beyond every level below its own: minimizing first the
// pairs beyond PIX, then the pairs beyond PXB, is equivalent to maximizing first the PIX pairs, then the PXB
// pairs.
func (c *cost) addPairs(level topology.Level, pairs int64) {
	near, far := pairWeights(level)
	c[termNear] += pairs * near
	c[termFar] += pairs * far
}

func pairWeights(level topology.Level) (near, far int64) {
	const first, second, third = 1 << (2 * countBits), 1 << countBits, 1
	switch level {
	case topology.PIX:
		return 0, 0
	case topology.PXB:
		return first, 0
	case topology.C2C:
		return first | second, 0
	case topology.PHB:
		return first | second | third, 0
	case topology.NODE:
		return first | second | third, first
	case topology.SYS:
		return first | second | third, first | second
	default:
		return first | second | third, first | second | third
	}
}

// breakingCost returns the cost of taking devices of a place: the decrease of (free devices)², summed over
// all places. The cost is lower if fewer devices are free, so the solver uses up broken places before whole
// places.
func breakingCost(free, taken int) int64 {
	return 2*int64(free)*int64(taken) - int64(taken)*int64(taken)
}

// fillCost is the cost of VFs taken from the PFs of one group.
type fillCost struct {
	degraded int64 // number of VFs taken from degraded PFs
	shared   int64 // for each VF the number of VFs taken before from its PF, and from its NIC, as two numbers
	load     int64 // for each VF the load of its PF
}

func (c fillCost) compare(d fillCost) int {
	return cmp.Or(cmp.Compare(c.degraded, d.degraded), cmp.Compare(c.shared, d.shared),
		cmp.Compare(c.load, d.load))
}

// The distance of two GPUs consists of two numbers that are summed over all pairs of a set: the first for
// links, the second for PCI Express, which decides if links are equal. Both share an int64, which has room
// for 2,000 chosen GPUs. The distance of GPUs of one card is 0; a direct link costs linkHop for each hop,
// less one for every parallel link; a missing link costs more than any link.
const (
	linkHop      = 100
	mostHops     = 9
	mostParallel = linkHop - 1
	noLink       = 1000
	levelStep    = 100
	linkShift    = 32
)

// distanceBy returns the distance of two GPUs that meet at a place and have the given distance by links. By
// PCI Express the level counts first; below the host bridge, GPUs with more shared bridges are nearer. The
// GPUs of a C2C complex have a host bridge each.
func (n *place) distanceBy(link int64) int64 {
	level, nearer := n.Level, 0
	switch level {
	case topology.C2C:
		level = topology.NODE
	case topology.PXB:
		nearer = min(n.Depth, levelStep-1)
	}
	d := levelStep*int64(level) - int64(nearer)
	return link<<linkShift + d
}

// link is a direct link between two cards, as numbers in the order of the tree, a before b.
type link struct {
	a, b int
	link int64 // distance of two GPUs with this link
}

// newLink returns a link between two cards of a tree passed to newSolver. Hops is the number of GPUs on the
// way, including the last one; count is the number of parallel links.
func newLink(a, b *place, hops, count int) link {
	hops = min(max(hops, 1), mostHops)
	return link{
		a: min(a.cardLow, b.cardLow), b: max(a.cardLow, b.cardLow),
		link: int64(linkHop*hops - min(max(count, 1), mostParallel)),
	}
}

// measureLinks sets for every place the distance of two GPUs that meet there. All such GPUs must have the
// same distance: without links, with links between all GPUs, or within hives that are places. If links do not
// follow the tree, measureLinks returns the links, otherwise nil.
func measureLinks(root *place, cards []*place, links []link) (irregular []link) {
	links = uniqueLinks(links)
	for _, l := range links {
		meet := cards[l.a].Parent
		for meet.cardHigh <= l.b {
			meet = meet.Parent
		}
		if meet.links == 0 {
			meet.link = l.link
		} else if meet.link != l.link {
			irregular = links
		}
		meet.links++
	}
	if root.settleNear() {
		return irregular
	}
	return links
}

// numberCards sets for every place the range of the cards below it.
func (n *place) numberCards(cards []*place) []*place {
	n.cardLow = len(cards)
	if n.Kind == kindCard {
		cards = append(cards, n)
	}
	for _, child := range n.Children {
		cards = child.numberCards(cards)
	}
	n.cardHigh = len(cards)
	return cards
}

// uniqueLinks returns the links without duplicates, of which the shortest remains.
func uniqueLinks(links []link) []link {
	slices.SortFunc(links, func(x, y link) int {
		return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b), cmp.Compare(x.link, y.link))
	})
	return slices.CompactFunc(links, func(x, y link) bool { return x.a == y.a && x.b == y.b })
}

// settleNear sets the distance of GPUs that meet at a place, and reports whether at every place either all or
// none of them have a link.
func (n *place) settleNear() bool {
	regular, crossing, below := true, 0, 0
	for _, child := range n.Children {
		regular = child.settleNear() && regular
		crossing += below * (child.cardHigh - child.cardLow)
		below += child.cardHigh - child.cardLow
	}
	if n.Kind == kindCard {
		return true
	}
	if n.links == 0 {
		n.link = noLink
	}
	n.near = n.distanceBy(n.link)
	return regular && (n.links == 0 || n.links == crossing)
}
