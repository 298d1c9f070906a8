// SPDX-License-Identifier: Apache-2.0

// Package locality scores the distances of GPUs by PCIe, and chooses GPUs like the vendor's device plugin.
package locality

import (
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// pairScore is the vendor policy's score of two GPUs by their distance in the PCI tree: higher is nearer.
var pairScore = [topology.Levels]int{
	topology.PIX: 50, topology.PXB: 40, topology.PHB: 30, topology.NODE: 20, topology.SYS: 10,
	topology.C2C: 20, // NODE for the vendor's policy
}

// Scores has the score of every two GPUs of a node, by index. Direct links do not count: they are equal
// between all GPUs of one NVSwitch, and the vendor's policy does not see them in that case. Scores are
// immutable.
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

// Of returns the sum of the scores over all pairs of a set of GPUs.
func (s Scores) Of(gpus []int) int {
	sum := 0
	for i, a := range gpus {
		for _, b := range gpus[:i] {
			sum += s[a][b]
		}
	}
	return sum
}

// Nearest returns the best score of size of the GPUs: the exact one for few sets, else by greedy extension
// from each GPU.
func (s Scores) Nearest(gpus []int, size int) (score int, sets [][]int) {
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

const mostTies = 1000 // limit of equally good sets, from which one is drawn

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
