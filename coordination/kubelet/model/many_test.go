// SPDX-License-Identifier: Apache-2.0

package model

import (
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/topology"
)

// TestManyNodesAreRefusedAtOnce: the kubelet does not start with more NUMA nodes than MaxNodes, and the rule
// refuses each container, without looking at all sets of nodes: of 48 nodes there are 2^48.
func TestManyNodesAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	demand := Demand{Count: 1}
	for node := range 48 {
		demand.All.Add(topology.Node(node))
		demand.Free.Add(topology.Node(node))
	}
	answers := make(chan [3]bool, 1)
	go func() {
		_, admitted := Restricted.Nodes(demand)
		r := Rule{Policy: Restricted}
		answers <- [...]bool{admitted, r.Width(demand) > 0, !r.TooMany(demand)}
	}()
	select {
	case got := <-answers:
		if got != [3]bool{} {
			t.Errorf("48 NUMA nodes: admitted, wide, few: %v", got)
		}
	case <-time.After(5 * time.Second):
		t.Error("no answer in 5 s")
	}
}
