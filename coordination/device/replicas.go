// SPDX-License-Identifier: Apache-2.0

package device

import (
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// Replicas is the rule for the choice among the replicas of shared devices, "" for none. As in NVIDIA's own
// plugin, use is counted per MIG device, so that MIG devices without replicas are all equal.
type Replicas string

// The rules (--shared-devices-allocation-policy).
const (
	Distributed Replicas = "distributed" // of the least used device
	Packed      Replicas = "packed"      // of the most used one
)

// Permit returns the free devices that the rule permits for a container that needs size devices, held ones
// included; all are the resource's devices. It leaves the choice among equally used devices, unless the
// request exceeds their replicas. If held and free sufficed for size devices, the result suffices too.
func (r Replicas) Permit(all, held, free []string, size int) []string {
	if r == "" || !slices.ContainsFunc(slices.Concat(held, free), isReplica) {
		return free
	}
	used, left := map[string]int{}, map[string][]string{}
	for _, id := range all {
		used[original(id)]++
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(free))) {
		if _, known := used[original(id)]; known && !slices.Contains(held, id) {
			left[original(id)] = append(left[original(id)], id)
		}
	}
	for of, replicas := range left {
		used[of] -= len(replicas)
	}
	size -= len(held)
	var permitted []string
	for len(permitted) < size && len(left) > 0 {
		best := r.leaders(left, used)
		if r == Packed && len(permitted)+1 < size {
			best = best[:1] // whichever is begun is the best from then on
		}
		if len(permitted) == 0 && len(best) >= size {
			return best // any of them fits
		}
		for _, id := range best[:min(len(best), size-len(permitted))] {
			permitted = append(permitted, id)
			take(left, used, id)
		}
	}
	return permitted
}

// leaders returns the first free replica of every best device.
func (r Replicas) leaders(left map[string][]string, used map[string]int) []string {
	better := func(a, b int) bool { return a < b }
	if r == Packed {
		better = func(a, b int) bool { return a > b }
	}
	var best []string
	for of, replicas := range left {
		switch {
		case len(best) == 0 || better(used[of], used[original(best[0])]):
			best = []string{replicas[0]}
		case used[of] == used[original(best[0])]:
			best = append(best, replicas[0])
		}
	}
	slices.Sort(best)
	return best
}

func take(left map[string][]string, used map[string]int, id string) {
	of := original(id)
	used[of]++
	if left[of] = left[of][1:]; len(left[of]) == 0 {
		delete(left, of)
	}
}

func original(id string) string {
	id, _ = topology.CutReplica(id)
	return id
}

func isReplica(id string) bool {
	_, replica := topology.CutReplica(id)
	return replica
}
