// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// whyRefused explains why an empty node refuses a request: the restricted policy admits a container only if
// all its resources prefer the same NUMA nodes, and a resource prefers the fewest nodes that suffice on an
// empty machine. It returns an error for any other refusal.
func whyRefused(r *rig.Rig, rejection *node.Rejection, size int) (string, error) {
	gpus, vfs := perNode(r.Node.Inventory(r.GPU)), perNode(r.Node.Inventory(rig.VF))
	g, v := fewest(gpus, size), fewest(vfs, size)
	if rejection.Reason != "TopologyAffinityError" || g == v {
		return "", fmt.Errorf("refused for no reason to be seen: %w", rejection)
	}
	return fmt.Sprintf("The kubelet refuses it: %s. %d GPUs want %s (%s),\n"+
		"%d VFs want %s (%s). The restricted policy admits only what wants\n"+
		"the same nodes for both. excludeTopology takes the VFs' wish away.",
		rejection.Reason, size, nodes(g), distribution(gpus), size, nodes(v), distribution(vfs)), nil
}

// perNode counts devices by NUMA node.
func perNode(inventory map[string][]int) map[int]int {
	count := map[int]int{}
	for _, numa := range inventory {
		for _, n := range numa {
			count[n]++
		}
	}
	return count
}

// fewest returns the minimum number of NUMA nodes for size devices, 0 for devices without nodes.
func fewest(perNode map[int]int, size int) int {
	counts := slices.SortedFunc(maps.Values(perNode), func(a, b int) int { return cmp.Compare(b, a) })
	for i, count := range counts {
		if size -= count; size <= 0 {
			return i + 1
		}
	}
	return 0
}

func nodes(n int) string {
	if n == 1 {
		return "one NUMA node"
	}
	return fmt.Sprintf("%d NUMA nodes", n)
}

// distribution returns text such as "each has 4" or "each has 31 to 32".
func distribution(perNode map[int]int) string {
	counts := slices.Sorted(maps.Values(perNode))
	if counts[0] == counts[len(counts)-1] {
		return fmt.Sprintf("each has %d", counts[0])
	}
	return fmt.Sprintf("each has %d to %d", counts[0], counts[len(counts)-1])
}
