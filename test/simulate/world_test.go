// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
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

func mixOf(t testing.TB, s string) Mix {
	t.Helper()
	m, err := ParseMix(s)
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

// TestTandemKnowsThePolicy: the coordinator reads the kubelet's policy. When the kubelet asks for VFs of a
// pool with excludeTopology first, the coordinator plans with the GPUs that this policy will offer: under
// none with those of all NUMA nodes, under best-effort with those of several nodes if one node has too few.
func TestTandemKnowsThePolicy(t *testing.T) {
	node := presetNode(t, "A", 1)
	for _, c := range []struct {
		policy  model.Policy
		gpus    []int // free ones, 0 to 3 on node 0, each on a switch with the VF of the same number
		vfs     []int
		request Request
	}{
		{model.PolicyNone, []int{0, 4}, []int{1, 4}, Request{GPUs: 1, VFs: 1}},
		{model.BestEffort, []int{0, 4}, []int{0, 1, 4, 5}, Request{GPUs: 2, VFs: 2}},
	} {
		for _, first := range Kinds {
			s := newState(node, Rules{Policy: c.policy, ExcludeTopology: true})
			var taken Container
			for kind, free := range [...][]int{c.gpus, c.vfs} {
				for i := range node.Count(Kind(kind)) {
					if !slices.Contains(free, i) {
						taken.Devices[kind] = append(taken.Devices[kind], i)
					}
				}
			}
			s.Take(taken)
			container, outcome := s.Admit(c.request, first, tandemKnown(node), newRand(1))
			pix, _, _ := node.Pairs(container)
			if outcome != Admitted || pix != c.request.Pairs() {
				t.Errorf("policy %s, %s first: outcome %v, devices %v, %d of %d pairs on one switch", c.policy, first,
					outcome, container.Devices, pix, c.request.Pairs())
			}
		}
	}
}
