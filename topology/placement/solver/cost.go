package solver

import (
	"cmp"

	"github.com/tandem-k8s/tandem/topology"
)

// cost is what a choice costs, the most important term first. Less is better, term by term. Every term is a
// sum over the places of the tree, so costs of disjoint parts add up.
type cost [terms]int64

// The terms, in the order of the objective; the package placement explains them.
const (
	termNear     = iota // pairs beyond PIX, beyond PXB and beyond PHB, as three numbers of countBits
	termFar             // pairs beyond NODE and beyond SYS, as two numbers of countBits
	termBridges         // redirected pairs, and bridges crossed by all pairs, as two numbers
	termStranded        // same-switch pairs that can no longer be made
	termLater           // and those that can no longer be made when other containers are gone
	termLocality        // GPU to GPU, by links and by PCI Express as two numbers
	termShared          // VFs of the container that share their PF
	termCards           // free partitions of cards that get broken
	termSwitches        // free GPUs of switches that get broken
	termNodes           // free GPUs of NUMA nodes that get broken
	termLoad            // VFs of other containers on the same PFs
	termCrowded         // VFs taken where few are free
	terms
)

const (
	countBits    = 20 // the room for one number of pairs in termNear and termFar
	bridgesShift = 32 // the room for the bridges in termBridges
)

// compare is negative where c is less, term by term.
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

// beyondPIX is the number of pairs that are not PIX.
func (c *cost) beyondPIX() int { return int(c[termNear] >> (2 * countBits)) }

// addPairs adds pairs of a level. A pair counts as beyond every level below its own: fewest beyond PIX first,
// then fewest beyond PXB and so on is the same as most PIX first, then most PXB.
func (c *cost) addPairs(level topology.Level, pairs int64) {
	near, far := pairWeights(level)
	c[termNear] += pairs * near
	c[termFar] += pairs * far
}

func pairWeights(level topology.Level) (near, far int64) {
	switch level {
	case topology.PIX:
		return 0, 0
	case topology.PXB:
		return 1 << (2 * countBits), 0
	case topology.PHB:
		return 1<<(2*countBits) | 1<<countBits, 0
	case topology.NODE:
		return 1<<(2*countBits) | 1<<countBits | 1, 0
	case topology.SYS:
		return 1<<(2*countBits) | 1<<countBits | 1, 1 << countBits
	default:
		return 1<<(2*countBits) | 1<<countBits | 1, 1<<countBits | 1
	}
}

// breaking is what it costs to take some of the free devices of a place: what the sum over all places of
// (devices left free)² loses. It costs less where less is free, so that places already broken are used up
// before whole ones are touched.
func breaking(free, taken int) int64 {
	return 2*int64(free)*int64(taken) - int64(taken)*int64(taken)
}

// FillCost is what VFs cost that are taken from the PFs of one group.
type FillCost struct {
	shared int64 // each as many as there are of them on its PF before it
	load   int64 // each the load of its PF
}

func (c FillCost) compare(d FillCost) int {
	return cmp.Or(cmp.Compare(c.shared, d.shared), cmp.Compare(c.load, d.load))
}
