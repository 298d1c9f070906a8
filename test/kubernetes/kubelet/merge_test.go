// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// merger is the kubelet's merger of the hints for a device of each resource, with devices on all NUMA nodes.
func merger(t testing.TB, nodes, resources int) topologymanager.HintMerger {
	t.Helper()
	numbers := make([]int, nodes)
	for i := range numbers {
		numbers[i] = i
	}
	var list []topologymanager.TopologyHint
	bitmask.IterateBitMasks(numbers, func(mask bitmask.BitMask) {
		list = append(list, topologymanager.TopologyHint{NUMANodeAffinity: mask, Preferred: mask.Count() == 1})
	})
	return topologymanager.NewHintMerger(&topologymanager.NUMAInfo{Nodes: numbers},
		slices.Repeat([][]topologymanager.TopologyHint{list}, resources), topologymanager.PolicyRestricted,
		topologymanager.PolicyOptions{})
}

// TestMergeTriesCombinations: the kubelet's work is proportional to the number of combinations of hints, by
// which doctor and plan estimate the time. If a kubelet merges otherwise (kubernetes#137700), the estimate,
// docs/limits.md and the threshold of excludeTopology auto are to be measured again.
func TestMergeTriesCombinations(t *testing.T) {
	rule := model.Rule{Policy: model.Restricted}
	perSecond := 0.0 // allocations for each second of the estimate
	for _, size := range [][2]int{{2, 4}, {3, 3}, {4, 2}, {4, 3}, {8, 1}, {8, 2}} {
		nodes, resources := size[0], size[1]
		m := merger(t, nodes, resources)
		work := testing.AllocsPerRun(1, func() { m.Merge() })
		demand := model.Demand{Count: 1}
		for node := range nodes {
			demand.All.Add(topology.Node(node))
			demand.Free.Add(topology.Node(node))
		}
		estimate := float64(rule.MergeTime(slices.Repeat([]model.Demand{demand}, resources)...))
		if perSecond == 0 {
			perSecond = work / estimate
		}
		if got := work / estimate / perSecond; math.Abs(got-1) > 0.5 {
			t.Errorf("%d NUMA nodes, %d resources: %.0f allocations are %.2f times the estimate", nodes, resources,
				work, got)
		}
	}
}

// BenchmarkMerge measures the table in docs/limits.md.
func BenchmarkMerge(b *testing.B) {
	for _, size := range [][2]int{{2, 2}, {2, 4}, {4, 2}, {4, 3}, {4, 4}, {8, 1}, {8, 2}, {8, 3}} {
		b.Run(fmt.Sprintf("nodes=%d/resources=%d", size[0], size[1]), func(b *testing.B) {
			m := merger(b, size[0], size[1])
			for b.Loop() {
				m.Merge()
			}
		})
	}
}
