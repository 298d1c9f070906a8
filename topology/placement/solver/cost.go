// SPDX-License-Identifier: Apache-2.0

package solver

import (
	"cmp"

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

// breaking returns the cost of taking devices of a place: the decrease of (free devices)², summed over all
// places. The cost is lower if fewer devices are free, so the solver uses up broken places before whole
// places.
func breaking(free, taken int) int64 {
	return 2*int64(free)*int64(taken) - int64(taken)*int64(taken)
}

// FillCost is the cost of VFs taken from the PFs of one group.
type FillCost struct {
	degraded int64 // number of VFs taken from degraded PFs
	shared   int64 // for each VF the number of VFs taken before from its PF, and from its NIC, as two numbers
	load     int64 // for each VF the load of its PF
}

func (c FillCost) compare(d FillCost) int {
	return cmp.Or(cmp.Compare(c.degraded, d.degraded), cmp.Compare(c.shared, d.shared),
		cmp.Compare(c.load, d.load))
}
