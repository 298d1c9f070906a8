// SPDX-License-Identifier: Apache-2.0

package hints

import (
	"iter"
	"math/bits"
)

// Mask is a set of NUMA nodes, a bit for each number from 0 to 63, as in
// pkg/kubelet/cm/topologymanager/bitmask.
type Mask uint64

// MaxNodes is the default limit of NUMA nodes, since the kubelet tries all sets of nodes. With more nodes the
// kubelet does not start, unless the option max-allowable-numa-nodes permits more.
const MaxNodes = 8

// Count returns the number of nodes in the set.
func (m Mask) Count() int { return bits.OnesCount64(uint64(m)) }

// Numbers returns the nodes in the set, ascending; nil for none.
func (m Mask) Numbers() []int {
	var numbers []int
	for ; m != 0; m &= m - 1 {
		numbers = append(numbers, bits.TrailingZeros64(uint64(m)))
	}
	return numbers
}

// Narrower reports the same as bitmask.IsNarrowerThan of the kubelet: fewer nodes, then lower numbers.
func (m Mask) Narrower(than Mask) bool {
	if a, b := m.Count(), than.Count(); a != b {
		return a < b
	}
	return m < than
}

// subsets iterates over all subsets except the empty set.
func (m Mask) subsets() iter.Seq[Mask] {
	return func(yield func(Mask) bool) {
		for s := -m & m; s != 0 && yield(s); s = (s - m) & m {
		}
	}
}

// Hint is a set of NUMA nodes with which a manager of the kubelet can serve a container (TopologyHint in
// pkg/kubelet/cm/topologymanager). Nodes is 0 for a hint without affinity.
type Hint struct {
	Nodes     Mask
	Preferred bool
}

// List contains the hints of the kubelet's CPU or memory manager for one resource. As in the kubelet, nil is
// no preference, and an empty list permits no set of nodes. A hint without affinity is the only hint of a
// list.
type List []Hint

// indifferent reports whether any set of nodes is acceptable.
func (l List) indifferent() bool { return l == nil || len(l) == 1 && l[0] == Hint{Preferred: true} }

// nodes returns the nodes of all hints.
func (l List) nodes() Mask {
	var m Mask
	for _, h := range l {
		m |= h.Nodes
	}
	return m
}
