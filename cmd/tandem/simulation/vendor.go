package simulation

import (
	"math/rand/v2"
	"slices"
)

// vendor chooses GPUs as the best-effort policy of NVIDIA's device plugin does: it parts the free GPUs into sets of the size that is
// asked for, finds the parting whose sets score best in all, and takes the best set of it. Ties are drawn: the list that the kubelet
// passes has a random order.
type vendor struct {
	node *Node
	memo map[setKey][][]int
}

// setKey is a question: which GPUs, how many of them.
type setKey struct {
	gpus string
	size int
}

func newVendor(n *Node) *vendor { return &vendor{node: n, memo: map[setKey][][]int{}} }

func (v *vendor) choose(available []int, size int, rng *rand.Rand) []int {
	key := setKey{keyOf(available), size}
	sets, ok := v.memo[key]
	if !ok {
		sets = v.sets(available, size)
		v.memo[key] = sets
	}
	return sets[rng.IntN(len(sets))]
}

// mostParted is the most GPUs for which the partings are gone through one by one; 12 have 10,395 of pairs. The policy itself
// takes seconds to minutes for more; the best set alone stands for it there.
const mostParted = 10

// sets lists the sets that the policy can answer, each as often as it is the answer.
func (v *vendor) sets(available []int, size int) [][]int {
	if len(available) > mostParted || size == 1 {
		_, sets := v.node.nearest(available, size)
		return sets
	}
	best := -1
	var sets [][]int
	v.part(available, size, func(parting [][]int) {
		total, most := 0, -1
		var set []int
		for _, s := range parting {
			score := v.node.score(s)
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
func (v *vendor) part(available []int, size int, visit func(parting [][]int)) {
	var step func(rest []int, parting [][]int)
	step = func(rest []int, parting [][]int) {
		if len(rest) == 0 {
			visit(parting)
			return
		}
		eachSet(rest[1:], size-1, func(others []int) {
			set := append([]int{rest[0]}, others...)
			step(without(rest, set), append(parting, set))
		})
	}
	eachSet(available, len(available)%size, func(over []int) {
		step(without(available, over), [][]int{clone(over)})
	})
}

func clone(list []int) []int { return slices.Clone(list) }

func contains(list []int, i int) bool { return slices.Contains(list, i) }

// without returns the list less some of its elements.
func without(list, some []int) []int {
	return slices.DeleteFunc(clone(list), func(i int) bool { return contains(some, i) })
}

// keyOf makes a map key of a list.
func keyOf(list []int) string {
	key := make([]byte, 0, 2*len(list))
	for _, i := range list {
		key = append(key, byte(i), byte(i>>8))
	}
	return string(key)
}
