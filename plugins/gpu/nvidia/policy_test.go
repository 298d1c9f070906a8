// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
)

// world is GPUs with their replicas; the letter is the GPU.
func world(gpus string, replicas int) (devices []gpu.Device) {
	for _, g := range gpus {
		for n := range replicas {
			devices = append(devices, gpu.Device{ID: fmt.Sprintf("%c::%d", g, n)})
		}
	}
	return devices
}

func TestNarrow(t *testing.T) {
	t.Attr("parity", "nvidia/preferred-shared-policy")
	for _, c := range []struct {
		policy          string
		available, must []string
		size            int
		narrowed        []string
	}{
		{settings.PolicyDistributed, []string{"a::1", "b::0", "b::1", "b::2", "c::0", "c::1", "c::2"}, nil, 1,
			[]string{"b::0", "c::0"}},
		{settings.PolicyDistributed, []string{"a::1", "b::0", "b::1", "b::2", "c::0", "c::1", "c::2"}, nil, 3,
			[]string{"b::0", "b::1", "c::0"}},
		{settings.PolicyPacked, []string{"a::1", "b::0", "b::1", "b::2", "c::0", "c::1", "c::2"}, nil, 1,
			[]string{"a::1"}},
		{settings.PolicyPacked, []string{"a::1", "b::0", "b::1", "b::2", "c::0", "c::1", "c::2"}, nil, 3,
			[]string{"a::1", "b::0", "b::1"}},
		{settings.PolicyPacked, []string{"b::0", "b::1", "b::2", "c::0", "c::1", "c::2"}, nil, 1,
			[]string{"b::0", "c::0"}},
		// of b and c two are in use each
		{settings.PolicyDistributed, []string{"b::0", "b::1", "c::0"}, []string{"b::0"}, 2,
			[]string{"b::0", "b::1", "c::0"}},
		{settings.PolicyDistributed, []string{"GPU-1", "GPU-2"}, nil, 1, []string{"GPU-1", "GPU-2"}},
		{settings.PolicyDistributed, []string{"a::0", "z::0", "a::0"}, nil, 2, []string{"a::0"}},
	} {
		backend := &Backend{config: settings.Config{SharedPolicy: c.policy}}
		narrowed := backend.Narrow(world("abc", 3), c.available, c.must, c.size)
		slices.Sort(narrowed)
		if !slices.Equal(narrowed, c.narrowed) {
			t.Errorf("%s %v, %v of %d: %v, want %v", c.policy, c.available, c.must, c.size, narrowed, c.narrowed)
		}
	}
}

// TestNarrowIsGreedy checks against choosing one by one, as NVIDIA's own plugin does: whatever is chosen of
// what Narrow leaves, at every step none of the GPUs not chosen from was better.
func TestNarrowIsGreedy(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		policy := []string{settings.PolicyDistributed, settings.PolicyPacked}[random.IntN(2)]
		devices := world("abcdef"[:1+random.IntN(6)], 1+random.IntN(5))
		var available, must []string
		for _, d := range devices {
			if random.IntN(3) > 0 {
				available = append(available, d.ID)
			}
		}
		if len(available) == 0 {
			continue
		}
		for _, id := range available {
			if random.IntN(8) == 0 {
				must = append(must, id)
			}
		}
		size := len(must) + random.IntN(len(available)-len(must)+1)
		backend := &Backend{config: settings.Config{SharedPolicy: policy}}
		rest := slices.DeleteFunc(backend.Narrow(devices, available, must, size), func(id string) bool {
			return slices.Contains(must, id)
		})
		random.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
		chosen := slices.Concat(must, rest)
		if len(chosen) < size {
			t.Fatalf("%s: %d of %v with %v: only %v", policy, size, available, must, chosen)
		}
		chosen = chosen[:size]
		if got, want := levels(devices, available, chosen),
			greedy(devices, available, must, size, policy); !slices.Equal(got, want) {
			t.Fatalf("%s: %d of %v with %v: %v uses GPUs as %v, one by one as %v",
				policy, size, available, must, chosen, got, want)
		}
	}
}

// levels is how much of every GPU is in use once chosen is, sorted.
func levels(devices []gpu.Device, available, chosen []string) []int {
	used := map[string]int{}
	for _, d := range devices {
		used[original(d.ID)] += 0
		if !slices.Contains(available, d.ID) || slices.Contains(chosen, d.ID) {
			used[original(d.ID)]++
		}
	}
	var list []int
	for _, n := range used {
		list = append(list, n)
	}
	slices.Sort(list)
	return list
}

// greedy is levels after choosing one by one.
func greedy(devices []gpu.Device, available, must []string, size int, policy string) []int {
	chosen := slices.Clone(must)
	for len(chosen) < size {
		best, bestUsed := "", 0
		for _, id := range available {
			if slices.Contains(chosen, id) {
				continue
			}
			used := 0
			for _, d := range devices {
				if original(d.ID) == original(id) &&
					(!slices.Contains(available, d.ID) || slices.Contains(chosen, d.ID)) {
					used++
				}
			}
			if best == "" || (policy == settings.PolicyPacked && used > bestUsed) ||
				(policy == settings.PolicyDistributed && used < bestUsed) {
				best, bestUsed = id, used
			}
		}
		chosen = append(chosen, best)
	}
	return levels(devices, available, chosen)
}
