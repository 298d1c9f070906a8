// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"slices"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
	"github.com/tandem-k8s/tandem/topology"
)

// share returns replicas of every device of a shared resource: <ID>::0, <ID>::1 and so on.
func share(s settings.Sharing, resources map[string][]gpu.Device) map[string][]gpu.Device {
	shared := make(map[string][]gpu.Device, len(resources))
	for resource, devices := range resources {
		replicas := s.Replicas[resource]
		if replicas == 0 {
			shared[resource] = append(shared[resource], devices...)
			continue
		}
		if s.Rename {
			resource += settings.SharedSuffix
		}
		for _, d := range devices {
			id := d.ID
			for n := range replicas {
				d.ID = topology.ReplicaID(id, n)
				shared[resource] = append(shared[resource], d)
			}
		}
	}
	return shared
}

// original returns the device ID of a replica, or the ID itself.
func original(id string) string {
	id, _ = topology.CutReplica(id)
	return id
}

func isReplica(id string) bool {
	_, replica := topology.CutReplica(id)
	return replica
}

// narrow is [Backend.Narrow] under a policy.
func narrow(
	policy string, devices []gpu.Device, available, mustInclude []string, size int,
) []string {
	if !slices.ContainsFunc(available, isReplica) {
		return available
	}
	used, free := map[string]int{}, map[string][]string{}
	for _, d := range devices {
		used[original(d.ID)]++
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(available))) {
		if _, known := used[original(id)]; known && !slices.Contains(mustInclude, id) {
			free[original(id)] = append(free[original(id)], id)
		}
	}
	for gpu, replicas := range free {
		used[gpu] -= len(replicas)
	}
	packed := policy == settings.PolicyPacked
	better := func(a, b int) bool { return a < b }
	if packed {
		better = func(a, b int) bool { return a > b }
	}
	narrowed := slices.Clone(mustInclude)
	for len(narrowed) < size && len(free) > 0 {
		best := leaders(free, used, better)
		if packed && len(narrowed)+1 < size {
			best = best[:1] // whichever is begun is the best from then on
		}
		if len(narrowed) == len(mustInclude) && len(narrowed)+len(best) >= size {
			return append(narrowed, best...) // any of them fits
		}
		for _, id := range best[:min(len(best), size-len(narrowed))] {
			narrowed = append(narrowed, id)
			take(free, used, id)
		}
	}
	return narrowed
}

// leaders returns the first free replica of every best GPU.
func leaders(free map[string][]string, used map[string]int, better func(a, b int) bool) []string {
	var best []string
	for gpu, replicas := range free {
		switch {
		case len(best) == 0 || better(used[gpu], used[original(best[0])]):
			best = []string{replicas[0]}
		case used[gpu] == used[original(best[0])]:
			best = append(best, replicas[0])
		}
	}
	slices.Sort(best)
	return best
}

func take(free map[string][]string, used map[string]int, id string) {
	gpu := original(id)
	used[gpu]++
	if free[gpu] = free[gpu][1:]; len(free[gpu]) == 0 {
		delete(free, gpu)
	}
}
