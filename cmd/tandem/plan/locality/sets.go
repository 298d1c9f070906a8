// SPDX-License-Identifier: Apache-2.0

package locality

import "slices"

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

// combinations returns the number of sets of k of n elements, or a number above mostSets.
func combinations(n, k int) int {
	c := 1
	for i := range min(k, n-k) {
		if c = c * (n - i) / (i + 1); c > mostSets {
			return c
		}
	}
	return c
}

// setKey is the key of a result: the GPUs and the size.
type setKey struct {
	gpus string
	size int
}

// without returns the list less some of its elements.
func without(list, some []int) []int {
	return slices.DeleteFunc(slices.Clone(list), func(i int) bool { return slices.Contains(some, i) })
}

// keyOf returns a map key for a list.
func keyOf(list []int) string {
	key := make([]byte, 0, 2*len(list))
	for _, i := range list {
		key = append(key, byte(i), byte(i>>8))
	}
	return string(key)
}
