// SPDX-License-Identifier: Apache-2.0

package locality

import (
	"math/rand/v2"
	"slices"
)

// Vendor chooses GPUs as the best-effort policy of NVIDIA's device plugin does: it parts the free GPUs into
// sets of the size that is asked for, finds the parting whose sets score best in all, and takes the best set
// of it. Ties are drawn: the list that the kubelet passes has a random order.
type Vendor struct {
	scores Scores
	memo   map[setKey][][]int
}

// NewVendor makes one for the GPUs of a node. It is not for use at the same time.
func NewVendor(s Scores) *Vendor { return &Vendor{scores: s, memo: map[setKey][][]int{}} }

// Choose takes so many of the GPUs, as the policy does.
func (v *Vendor) Choose(available []int, size int, rng *rand.Rand) []int {
	key := setKey{keyOf(available), size}
	sets, ok := v.memo[key]
	if !ok {
		sets = v.sets(available, size)
		v.memo[key] = sets
	}
	return sets[rng.IntN(len(sets))]
}

// mostParted is the most GPUs for which the partings are gone through one by one; 12 have 10,395 of pairs.
// The policy itself takes seconds to minutes for more; the best set alone stands for it there.
const mostParted = 10

// sets lists the sets that the policy can answer, each as often as it is the answer.
func (v *Vendor) sets(available []int, size int) [][]int {
	if len(available) > mostParted || size == 1 {
		_, sets := v.scores.nearest(available, size)
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

// part visits all partings into sets of a size; what is left over makes one smaller set.
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
