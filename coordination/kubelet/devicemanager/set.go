// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"math/bits"
	"slices"
)

// Set is a set of a node's devices, a bit for each. The first device of each resource begins a word. The nil
// set is empty, but cannot be changed.
type Set []uint64

// Has reports whether the set has a device.
func (s Set) Has(i int) bool { return s[i>>6]>>(i&63)&1 == 1 }

// Insert adds a device.
func (s Set) Insert(i int) { s[i>>6] |= 1 << (i & 63) }

// InsertRange adds the devices from first to last.
func (s Set) InsertRange(first, last int) {
	for w := first >> 6; w <= last>>6; w++ {
		s[w] |= wordRange(w, first, last)
	}
}

// DeleteRange removes the devices from first to last.
func (s Set) DeleteRange(first, last int) {
	for w := first >> 6; w <= last>>6; w++ {
		s[w] &^= wordRange(w, first, last)
	}
}

// wordRange returns the bits from first to last that are in one word.
func wordRange(word, first, last int) uint64 {
	from, to := max(first-word<<6, 0), min(last-word<<6, 63)
	return ^uint64(0) << from & (^uint64(0) >> (63 - to))
}

// Len returns the number of devices.
func (s Set) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Common returns the number of devices that are in both sets.
func (s Set) Common(t Set) int {
	n := 0
	for i := range min(len(s), len(t)) {
		n += bits.OnesCount64(s[i] & t[i])
	}
	return n
}

// Include adds the devices of t.
func (s Set) Include(t Set) {
	for i, w := range t {
		s[i] |= w
	}
}

// Exclude removes the devices of t.
func (s Set) Exclude(t Set) {
	for i, w := range t {
		s[i] &^= w
	}
}

// Intersection returns a new set with the devices that are in both sets.
func (s Set) Intersection(t Set) Set {
	c := make(Set, max(len(s), len(t)))
	for i := range min(len(s), len(t)) {
		c[i] = s[i] & t[i]
	}
	return c
}

// Difference returns a new set without the devices of t.
func (s Set) Difference(t Set) Set {
	c := make(Set, max(len(s), len(t)))
	copy(c, s)
	c.Exclude(t)
	return c
}

// Clone returns a copy.
func (s Set) Clone() Set { return slices.Clone(s) }

// Equal reports whether two sets of one node have the same devices.
func (s Set) Equal(t Set) bool { return slices.Equal(s, t) }

// Each visits the devices, ascending.
func (s Set) Each(visit func(int)) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			visit(i<<6 + bits.TrailingZeros64(w))
		}
	}
}

// Lowest returns the first devices of a set: count of them, or all if there are fewer.
func (s Set) Lowest(count int) Set {
	lowest := make(Set, len(s))
	s.Each(func(i int) {
		if count > 0 {
			lowest.Insert(i)
			count--
		}
	})
	return lowest
}
