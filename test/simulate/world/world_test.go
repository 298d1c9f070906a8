// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// presetNode caches each node, which takes milliseconds under the race detector.
func presetNode(t testing.TB, name string, vfsPerPF int) *Node {
	t.Helper()
	key := fmt.Sprint(name, vfsPerPF)
	if n, ok := made.Load(key); ok {
		return n.(*Node)
	}
	n, err := NewPreset(name, vfsPerPF)
	if err != nil {
		t.Fatal(err)
	}
	made.Store(key, n)
	return n
}

var made sync.Map

// occupy leaves the given numbers of GPUs free on the two NUMA nodes.
func occupy(s *State, free0, free1 int) {
	left := [2]int{free0, free1}
	for i, d := range s.Node.Devices[GPU] {
		if left[d.NUMA]--; left[d.NUMA] < 0 {
			s.Take(Container{Devices: [2][]int{GPU: {i}}})
		}
	}
}

// scatter takes devices at random.
func scatter(s *State, rng *rand.Rand, share float64) {
	for _, kind := range Kinds {
		for i := range s.Node.Devices[kind] {
			if rng.Float64() < share {
				var c Container
				c.Devices[kind] = []int{i}
				s.Take(c)
			}
		}
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// nothing has no preference.
func nothing(*State, Question, *rand.Rand) []int { return nil }
