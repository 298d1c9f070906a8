package verdict

import "math/bits"

// set has devices of all resources of a node, a bit for each. Every resource begins at a word of its own.
type set []uint64

func (s set) has(i int) bool { return s[i>>6]>>(i&63)&1 == 1 }

func (s set) add(i int) { s[i>>6] |= 1 << (i & 63) }

// fill adds a run of members, both ends included.
func (s set) fill(first, last int) {
	for w := first >> 6; w <= last>>6; w++ {
		s[w] |= run(w, first, last)
	}
}

// drop removes a run, both ends included.
func (s set) drop(first, last int) {
	for w := first >> 6; w <= last>>6; w++ {
		s[w] &^= run(w, first, last)
	}
}

// run is the part of a run that is in one word.
func run(word, first, last int) uint64 {
	from, to := max(first-word<<6, 0), min(last-word<<6, 63)
	return ^uint64(0) << from & (^uint64(0) >> (63 - to))
}

func (s set) count() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// both counts what two sets have in common.
func (s set) both(t set) int {
	n := 0
	for i, w := range s {
		n += bits.OnesCount64(w & t[i])
	}
	return n
}

func (s set) join(t set) {
	for i, w := range t {
		s[i] |= w
	}
}

func (s set) leave(t set) {
	for i, w := range t {
		s[i] &^= w
	}
}

// part is a copy in which only the members of another set are left.
func (s set) part(of set) set {
	c := make(set, len(s))
	for i, w := range s {
		c[i] = w & of[i]
	}
	return c
}

// without is a copy that lacks the members of another set.
func (s set) without(t set) set {
	c := make(set, len(s))
	for i, w := range s {
		c[i] = w &^ t[i]
	}
	return c
}

func (s set) each(visit func(int)) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			visit(i<<6 + bits.TrailingZeros64(w))
		}
	}
}
