// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// Vendor chooses GPUs like the best-effort policy of NVIDIA's device plugin: it partitions the free GPUs into
// sets of the requested size, finds the partition with the best total score, and takes its best set. Ties are
// random, because the kubelet's list has a random order.
type Vendor struct {
	scores Scores
	memo   map[string][][]int // answers by GPUs and size
}

// NewVendor returns a Vendor for the GPUs of a node. It is not safe for concurrent use.
func NewVendor(s Scores) *Vendor { return &Vendor{scores: s, memo: map[string][][]int{}} }

// Choose returns size of the GPUs, as the policy chooses them.
func (v *Vendor) Choose(available []int, size int, rng *rand.Rand) []int {
	key := fmt.Sprint(available, size)
	sets, ok := v.memo[key]
	if !ok {
		sets = v.answerSets(available, size)
		v.memo[key] = sets
	}
	return sets[rng.IntN(len(sets))]
}

// mostParted is the maximum number of GPUs for an enumeration of all partitions; 12 GPUs have 10,395
// partitions into pairs. The policy itself takes seconds to minutes for more GPUs; here the best set
// approximates the policy.
const mostParted = 10

// answerSets returns the possible answers of the policy, each as often as it is the answer.
func (v *Vendor) answerSets(available []int, size int) [][]int {
	if len(available) > mostParted || size == 1 {
		_, sets := v.scores.Nearest(available, size)
		return sets
	}
	best := -1
	var sets [][]int
	v.visitPartings(available, size, func(parting [][]int) {
		total, most := 0, -1
		var set []int
		for _, s := range parting {
			score := v.scores.Of(s)
			total += score
			if len(s) == size && score > most {
				most, set = score, s
			}
		}
		if total > best {
			best, sets = total, nil
		}
		if total == best {
			sets = append(sets, slices.Clone(set))
		}
	})
	return sets
}

// visitPartings visits all partitions into sets of a size; the remainder makes one smaller set.
func (v *Vendor) visitPartings(available []int, size int, visit func(parting [][]int)) {
	var step func(rest []int, parting [][]int)
	step = func(rest []int, parting [][]int) {
		if len(rest) == 0 {
			visit(parting)
			return
		}
		EachSet(rest[1:], size-1, func(others []int) {
			set := append([]int{rest[0]}, others...)
			step(withoutElements(rest, set), append(parting, set))
		})
	}
	EachSet(available, len(available)%size, func(over []int) {
		step(withoutElements(available, over), [][]int{slices.Clone(over)})
	})
}

// PickRandom moves n random elements of a list to its front and returns them.
func PickRandom(list []int, n int, rng *rand.Rand) []int {
	for i := range n {
		j := i + rng.IntN(len(list)-i)
		list[i], list[j] = list[j], list[i]
	}
	return list[:n]
}

// pairScore is the vendor policy's score of two GPUs by their distance in the PCI tree: higher is nearer.
var pairScore = [topology.Levels]int{
	topology.PIX: 50, topology.PXB: 40, topology.PHB: 30, topology.NODE: 20, topology.SYS: 10,
	topology.C2C: 20, // NODE for the vendor's policy
}

// Scores has the score of every two GPUs of a node, by index. Direct links do not count: they are equal
// between all GPUs of one NVSwitch, and the vendor's policy does not see them in that case. Scores are
// immutable.
type Scores [][]int

// NewScores works the scores out.
func NewScores(tree *topology.Tree, gpus []topology.Address) Scores {
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
	if countCombinations(len(gpus), size) > mostSets {
		return s.growSets(gpus, size)
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

func (s Scores) growSets(gpus []int, size int) (score int, sets [][]int) {
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

// EachSet visits all subsets of a size; a set is valid only during its visit.
func EachSet(list []int, size int, visit func(set []int)) {
	set := make([]int, 0, size)
	var step func(from int)
	step = func(from int) {
		if len(set) == size {
			visit(set)
			return
		}
		for i := from; i <= len(list)-(size-len(set)); i++ {
			set = append(set, list[i])
			step(i + 1)
			set = set[:len(set)-1]
		}
	}
	step(0)
}

// mostSets is how many sets are gone through: 16 GPUs have 12,870 of 8.
const mostSets = 20_000

// countCombinations returns the number of sets of k of n elements, or a number above mostSets.
func countCombinations(n, k int) int {
	c := 1
	for i := range min(k, n-k) {
		c = c * (n - i) / (i + 1)
		if c > mostSets {
			return c
		}
	}
	return c
}

// withoutElements returns the list less some of its elements.
func withoutElements(list, some []int) []int {
	return slices.DeleteFunc(slices.Clone(list), func(i int) bool { return slices.Contains(some, i) })
}
