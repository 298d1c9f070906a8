// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/tandem-k8s/tandem/test/simulate/world"
)

// presetNode caches each node, which takes milliseconds under the race detector.
func presetNode(t testing.TB, name string, vfsPerPF int) *world.Node {
	t.Helper()
	key := fmt.Sprint(name, vfsPerPF)
	if n, ok := made.Load(key); ok {
		return n.(*world.Node)
	}
	n, err := world.NewPreset(name, vfsPerPF)
	if err != nil {
		t.Fatal(err)
	}
	made.Store(key, n)
	return n
}

var made sync.Map

func mixOf(t testing.TB, s string) world.Mix {
	t.Helper()
	m, err := world.ParseMix(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ways(t testing.TB, names ...string) []Way {
	t.Helper()
	w, err := FindWays(names)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// scatter takes devices at random.
func scatter(s *world.State, rng *rand.Rand, share float64) {
	for _, kind := range world.Kinds {
		for i := range s.Node.Devices[kind] {
			if rng.Float64() < share {
				var c world.Container
				c.Devices[kind] = []int{i}
				s.Take(c)
			}
		}
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
