// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/plan/locality"
)

// best caches the best scores of sets of GPUs. It is not safe for concurrent use.
type best struct {
	scores locality.Scores
	memo   map[setKey]int
}

// setKey is the key of a score: the GPUs as a set of bits by index, and the size.
type setKey struct {
	gpus string
	size int
}

func newBest(s locality.Scores) *best { return &best{s, map[setKey]int{}} }

// of returns the best score of size of the GPUs.
func (b *best) of(gpus []int, size int) int {
	bits := make([]byte, (len(b.scores)+7)/8)
	for _, i := range gpus {
		bits[i/8] |= 1 << (i % 8)
	}
	key := setKey{string(bits), size}
	score, ok := b.memo[key]
	if !ok {
		slices.Sort(gpus)
		score, _ = b.scores.Nearest(gpus, size)
		b.memo[key] = score
	}
	return score
}
