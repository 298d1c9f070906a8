// SPDX-License-Identifier: Apache-2.0

package hints

import (
	"iter"
	"math/bits"
)

// Mask is a set of NUMA nodes, a bit for each number from 0 to 63, as in
// pkg/kubelet/cm/topologymanager/bitmask.
type Mask uint64

// MaxNodes is the number of NUMA nodes up to which all sets of nodes are tried. The kubelet refuses to start
// with more unless it is told otherwise (max-allowable-numa-nodes).
const MaxNodes = 8

// Count is the number of nodes in the set.
func (m Mask) Count() int { return bits.OnesCount64(uint64(m)) }

// Numbers lists the nodes in the set, ascending; nil for none.
func (m Mask) Numbers() []int {
	var numbers []int
	for ; m != 0; m &= m - 1 {
		numbers = append(numbers, bits.TrailingZeros64(uint64(m)))
	}
	return numbers
}

// Narrower is bitmask.IsNarrowerThan of the kubelet: fewer nodes, then lower numbers.
func (m Mask) Narrower(than Mask) bool {
	if a, b := m.Count(), than.Count(); a != b {
		return a < b
	}
	return m < than
}

// subsets are all sets of nodes of this one but the empty one.
func (m Mask) subsets() iter.Seq[Mask] {
	return func(yield func(Mask) bool) {
		for s := -m & m; s != 0 && yield(s); s = (s - m) & m {
		}
	}
}
