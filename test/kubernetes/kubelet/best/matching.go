// SPDX-License-Identifier: Apache-2.0

package best

import "math"

// unmatched is the partner of a vertex without one.
const unmatched = -1

// matching is a matching in a complete bipartite graph that has the largest weight among those of its size.
type matching struct {
	weight      [][]int64 // [left][right]
	left, right []int     // the partner of each vertex, or unmatched
}

func newMatching(left, right int, weight func(left, right int) int64) *matching {
	m := &matching{left: make([]int, left), right: make([]int, right)}
	for r := range right {
		m.right[r] = unmatched
	}
	for l := range left {
		m.left[l] = unmatched
		row := make([]int64, right)
		for r := range row {
			row[r] = weight(l, r)
		}
		m.weight = append(m.weight, row)
	}
	return m
}

// augment adds one pair by the alternating path that gains the most weight. Beginning with none, that gives
// the largest weight for every size (Ford and Fulkerson's successive shortest paths, with the longest in
// their place).
func (m *matching) augment() {
	gain, via := m.paths()
	end := unmatched
	for r, l := range m.right {
		if l == unmatched && (end == unmatched || gain[r] > gain[end]) {
			end = r
		}
	}
	for r := end; r != unmatched; {
		l := via[r]
		m.right[r] = l
		m.left[l], r = r, m.left[l]
	}
}

// unreached is the gain of a vertex to which no path is known yet.
const unreached = math.MinInt64

// paths finds, for every right vertex, the alternating path from an unmatched left vertex that gains the most
// weight: what it gains, and the left vertex before the end (Bellman and Ford).
func (m *matching) paths() (gain []int64, via []int) {
	gain, via = make([]int64, len(m.right)), make([]int, len(m.right))
	for r := range gain {
		gain[r] = unreached
	}
	for improved := true; improved; {
		improved = false
		for l := range m.left {
			start := m.gainAt(l, gain)
			for r := range m.right {
				if start != unreached && r != m.left[l] && start+m.weight[l][r] > gain[r] {
					gain[r], via[r], improved = start+m.weight[l][r], l, true
				}
			}
		}
	}
	return gain, via
}

// gainAt is the gain of the best known path to a left vertex: none for an unmatched one, where paths begin;
// for a matched one that of its partner, less the weight of their pair, which the path would give up.
func (m *matching) gainAt(l int, gain []int64) int64 {
	r := m.left[l]
	switch {
	case r == unmatched:
		return 0
	case gain[r] == unreached:
		return unreached
	default:
		return gain[r] - m.weight[l][r]
	}
}
