// SPDX-License-Identifier: Apache-2.0

package models_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
)

var (
	admissions = flag.Int("models", 10_000, "admissions on which the models are compared with the real kubelet")
	seed       = flag.Uint64("seed", 1, "seed of the nodes and pods; the kubelet's own order stays random")
)

func TestMain(m *testing.M) {
	flag.Parse()
	node.Silence()
	goleak.VerifyTestMain(m)
}

// TestModelsAreTheKubelet: each model admits the pods that the real managers admit, on the same NUMA nodes,
// with the same questions to the plugins and the same devices.
func TestModelsAreTheKubelet(t *testing.T) {
	const workers, stay = 4, 50 // admissions on a node
	var mu sync.Mutex
	seen := map[string]int{}
	t.Run("on", func(t *testing.T) {
		for worker := range uint64(workers) {
			t.Run(fmt.Sprint("worker ", worker), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(*seed, worker))
				for left := *admissions / workers; left > 0 && !t.Failed(); left -= stay {
					c := newComparison(t, randomWorld(t, random), random)
					c.stay(min(left, stay))
					mu.Lock()
					for what, n := range c.seen {
						seen[what] += n
					}
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("kubelet %s: %v", node.Version, seen)
	for _, what := range []string{
		admitted, misaligned, short, asked, completed, notAsked, filledUp, inherited, foretold, unforetold,
	} {
		if seen[what] == 0 && *admissions >= 2000 {
			t.Errorf("never %s: that is not compared", what)
		}
	}
}

// Conditions that are counted.
const (
	admitted   = "admitted"
	misaligned = "refused by the Topology Manager"
	short      = "refused for devices"
	asked      = "a plugin asked"
	completed  = "a plugin asked to complete devices"
	notAsked   = "no plugin asked"
	filledUp   = "an answer filled up"
	inherited  = "devices of an init container reused"
	foretold   = "a verdict compared"
	unforetold = "a verdict not compared"
)
