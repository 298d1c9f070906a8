// SPDX-License-Identifier: Apache-2.0

package locality

import (
	"math/rand/v2"
	"slices"
)

// Vendor chooses GPUs like the best-effort policy of NVIDIA's device plugin: it partitions the free GPUs into
// sets of the requested size, finds the partition with the best total score, and takes its best set. Ties are
// random, because the kubelet's list has a random order.
type Vendor struct {
	scores Scores
	memo   map[setKey][][]int
}

// NewVendor returns a Vendor for the GPUs of a node. It is not safe for concurrent use.
func NewVendor(s Scores) *Vendor { return &Vendor{scores: s, memo: map[setKey][][]int{}} }

// Choose returns size of the GPUs, as the policy chooses them.
func (v *Vendor) Choose(available []int, size int, rng *rand.Rand) []int {
	key := setKey{keyOf(available), size}
	sets, ok := v.memo[key]
	if !ok {
		sets = v.sets(available, size)
		v.memo[key] = sets
	}
	return sets[rng.IntN(len(sets))]
}

// mostParted is the maximum number of GPUs for an enumeration of all partitions; 12 GPUs have 10,395
// partitions into pairs. The policy itself takes seconds to minutes for more GPUs; here the best set
// approximates the policy.
const mostParted = 10

// sets returns the possible answers of the policy, each as often as it is the answer.
func (v *Vendor) sets(available []int, size int) [][]int {
	if len(available) > mostParted || size == 1 {
		_, sets := v.scores.Nearest(available, size)
		return sets
	}
	best := -1
	var sets [][]int
	v.part(available, size, func(parting [][]int) {
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

// part visits all partitions into sets of a size; the remainder makes one smaller set.
func (v *Vendor) part(available []int, size int, visit func(parting [][]int)) {
	var step func(rest []int, parting [][]int)
	step = func(rest []int, parting [][]int) {
		if len(rest) == 0 {
			visit(parting)
			return
		}
		EachSet(rest[1:], size-1, func(others []int) {
			set := append([]int{rest[0]}, others...)
			step(without(rest, set), append(parting, set))
		})
	}
	EachSet(available, len(available)%size, func(over []int) {
		step(without(available, over), [][]int{slices.Clone(over)})
	})
}

// Pick moves n random elements of a list to its front and returns them.
func Pick(list []int, n int, rng *rand.Rand) []int {
	for i := range n {
		j := i + rng.IntN(len(list)-i)
		list[i], list[j] = list[j], list[i]
	}
	return list[:n]
}
