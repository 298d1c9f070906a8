// SPDX-License-Identifier: Apache-2.0

// Package locality says how near GPUs are to each other by PCIe, and chooses them as the vendor's device
// plugin does.
package locality

import (
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// pairScore is what the vendor's policy gives two GPUs for where they are in the PCI tree: the more, the
// nearer.
var pairScore = [topology.Levels]int{
	topology.PIX: 50, topology.PXB: 40, topology.PHB: 30, topology.NODE: 20, topology.SYS: 10,
}

// Scores tell of every two GPUs of a node how near they are in the PCI tree; a GPU is its index. Direct links
// are left out: they are the same between all GPUs of one NVSwitch, and the vendor's policy does not see them
// there. They never change.
type Scores [][]int

// New works the scores out.
func New(tree *topology.Tree, gpus []topology.Address) Scores {
	scores := make(Scores, len(gpus))
	for i, a := range gpus {
		scores[i] = make([]int, len(gpus))
		for j, b := range gpus {
			if i != j {
				scores[i][j] = pairScore[tree.Distance(a, b).Level]
			}
		}
	}
	return scores
}

// Of is how near the GPUs of a set are to each other, summed up over all pairs.
func (s Scores) Of(gpus []int) int {
	sum := 0
	for i, a := range gpus {
		for _, b := range gpus[:i] {
			sum += s[a][b]
		}
	}
	return sum
}

// nearest finds the best score that so many of these GPUs can have, exactly where the sets are few, else by
// adding GPU after GPU to each of them in turn.
func (s Scores) nearest(gpus []int, size int) (score int, sets [][]int) {
	if size == 0 || size > len(gpus) {
		return 0, nil
	}
	if combinations(len(gpus), size) > mostSets {
		return s.grow(gpus, size)
	}
	score = -1
	EachSet(gpus, size, func(set []int) {
		switch of := s.Of(set); {
		case of > score:
			score, sets = of, [][]int{slices.Clone(set)}
		case of == score && len(sets) < mostTies:
			sets = append(sets, slices.Clone(set))
		}
	})
	return score, sets
}

const mostTies = 1000 // of equally good sets, from which one is drawn

func (s Scores) grow(gpus []int, size int) (score int, sets [][]int) {
	score = -1
	for _, first := range gpus {
		set := []int{first}
		for len(set) < size {
			best, gain := -1, -1
			for _, g := range gpus {
				if slices.Contains(set, g) {
					continue
				}
				if more := s.Of(append(slices.Clone(set), g)) - s.Of(set); more > gain {
					best, gain = g, more
				}
			}
			set = append(set, best)
		}
		switch of := s.Of(set); {
		case of > score:
			score, sets = of, [][]int{set}
		case of == score:
			sets = append(sets, set)
		}
	}
	return score, sets
}

// Best finds the best scores of sets of GPUs and remembers them. It is not for use at the same time.
type Best struct {
	scores Scores
	memo   map[setKey]int
}

// NewBest remembers nothing yet.
func NewBest(s Scores) *Best { return &Best{s, map[setKey]int{}} }

// Of is the best score that so many of these GPUs can have. It sorts the list.
func (b *Best) Of(gpus []int, size int) int {
	slices.Sort(gpus)
	key := setKey{keyOf(gpus), size}
	score, ok := b.memo[key]
	if !ok {
		score, _ = b.scores.nearest(gpus, size)
		b.memo[key] = score
	}
	return score
}
