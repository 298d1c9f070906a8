// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math/rand/v2"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

// TestHintsOfADemand: a demand in the form of hints has the same influence as the demand.
func TestHintsOfADemand(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	demand := func() (d Demand) {
		d.Count = random.IntN(5)
		for range random.IntN(12) {
			node := topology.Node(random.IntN(4))
			d.All.Add(node)
			if random.IntN(3) > 0 {
				d.Free.Add(node)
			}
		}
		return d
	}
	for range 10_000 {
		r := Rule{Policy: []Policy{Restricted, BestEffort, SingleNUMANode}[random.IntN(3)]}
		a, b := demand(), demand()
		want, admitted := r.Merge([]Demand{a, b})
		if got, also := r.Merge([]Demand{a}, r.Hints(b)); got != want || also != admitted {
			t.Fatalf("%s, %+v, %+v: %+v, %v; as hints %+v, %v", r.Policy, a, b, want, admitted, got, also)
		}
	}
}
