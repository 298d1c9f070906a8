// SPDX-License-Identifier: Apache-2.0

package best

import "math"

// unmatched is the partner of a vertex without one.
const unmatched = -1

// matching is a matching of maximum weight for its size in a complete bipartite graph.
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

// augment adds one pair by the alternating path with the largest gain. Starting from an empty matching, each
// size has maximum weight (Ford and Fulkerson's successive shortest paths, here longest paths).
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

// unreached is the gain of a vertex without a known path.
const unreached = math.MinInt64

// paths returns, for every right vertex, the largest gain of an alternating path from an unmatched left
// vertex, and the left vertex before the end (Bellman and Ford).
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

// gainAt returns the gain of the best known path to a left vertex: 0 for an unmatched one, where paths begin;
// otherwise the gain of its partner less the weight of their pair, which the path would remove.
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
