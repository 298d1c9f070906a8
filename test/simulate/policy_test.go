// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/test/simulate/world"
)

// TestTandemKnowsThePolicy: the coordinator reads the kubelet's policy. When the kubelet asks for VFs of a
// pool with excludeTopology first, the coordinator plans with the GPUs that this policy will offer: under
// none with those of all NUMA nodes, under best-effort with those of several nodes if one node has too few.
func TestTandemKnowsThePolicy(t *testing.T) {
	node := presetNode(t, "A", 1)
	for _, c := range []struct {
		policy  hints.Policy
		gpus    []int // free ones, 0 to 3 on node 0, each on a switch with the VF of the same number
		vfs     []int
		request world.Request
	}{
		{hints.None, []int{0, 4}, []int{1, 4}, world.Request{GPUs: 1, VFs: 1}},
		{hints.BestEffort, []int{0, 4}, []int{0, 1, 4, 5}, world.Request{GPUs: 2, VFs: 2}},
	} {
		for _, first := range world.Kinds {
			s := world.NewState(node, world.Rules{Policy: c.policy, ExcludeTopology: true})
			var taken world.Container
			for kind, free := range [...][]int{c.gpus, c.vfs} {
				for i := range node.Count(world.Kind(kind)) {
					if !slices.Contains(free, i) {
						taken.Devices[kind] = append(taken.Devices[kind], i)
					}
				}
			}
			s.Take(taken)
			container, outcome := s.Admit(c.request, first, tandemKnown(node), newRand(1))
			pix, _, _ := node.Pairs(container)
			if outcome != world.Admitted || pix != c.request.Pairs() {
				t.Errorf("policy %s, %s first: outcome %v, devices %v, %d of %d pairs on one switch", c.policy, first,
					outcome, container.Devices, pix, c.request.Pairs())
			}
		}
	}
}
