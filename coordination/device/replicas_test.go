// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// world is GPUs with their replicas; the letter is the GPU.
func world(gpus string, replicas int) (ids []string) {
	for _, g := range gpus {
		for n := range replicas {
			ids = append(ids, fmt.Sprintf("%c::%d", g, n))
		}
	}
	return ids
}

func TestPermit(t *testing.T) {
	t.Attr("parity", "nvidia/preferred-shared-policy")
	for _, c := range []struct {
		rule            Replicas
		available, must []string
		size            int
		permitted       []string
	}{
		{Distributed, []string{"a::1", "b::0", "b::1", "b::2", "c::0", "c::1", "c::2"}, nil, 1,
			[]string{"b::0", "c::0"}},
		{Distributed, []string{"a::1", "b::0", "b::1", "b::2", "c::0", "c::1", "c::2"}, nil, 3,
			[]string{"b::0", "b::1", "c::0"}},
		{Packed, []string{"a::1", "b::0", "b::1", "b::2", "c::0", "c::1", "c::2"}, nil, 1,
			[]string{"a::1"}},
		{Packed, []string{"a::1", "b::0", "b::1", "b::2", "c::0", "c::1", "c::2"}, nil, 3,
			[]string{"a::1", "b::0", "b::1"}},
		{Packed, []string{"b::0", "b::1", "b::2", "c::0", "c::1", "c::2"}, nil, 1,
			[]string{"b::0", "c::0"}},
		// of b and c two are in use each
		{Distributed, []string{"b::0", "b::1", "c::0"}, []string{"b::0"}, 2,
			[]string{"b::0", "b::1", "c::0"}},
		{Distributed, []string{"GPU-1", "GPU-2"}, nil, 1, []string{"GPU-1", "GPU-2"}},
		{Distributed, []string{"a::0", "z::0", "a::0"}, nil, 2, []string{"a::0"}},
	} {
		permitted := slices.Concat(c.must, c.rule.Permit(world("abc", 3), c.must, c.available, c.size))
		slices.Sort(permitted)
		if !slices.Equal(permitted, c.permitted) {
			t.Errorf("%s %v, %v of %d: %v, want %v", c.rule, c.available, c.must, c.size, permitted, c.permitted)
		}
	}
}

// TestPermitIsGreedy checks against choosing one by one, as NVIDIA's own plugin does: whatever is chosen of
// what Permit leaves, at every step none of the GPUs not chosen from was better.
func TestPermitIsGreedy(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		rule := []Replicas{Distributed, Packed}[random.IntN(2)]
		devices := world("abcdef"[:1+random.IntN(6)], 1+random.IntN(5))
		var available, must []string
		for _, d := range devices {
			if random.IntN(3) > 0 {
				available = append(available, d)
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
		rest := rule.Permit(devices, must, available, size)
		random.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
		chosen := slices.Concat(must, rest)
		if len(chosen) < size {
			t.Fatalf("%s: %d of %v with %v: only %v", rule, size, available, must, chosen)
		}
		chosen = chosen[:size]
		if got, want := levels(devices, available, chosen),
			greedy(devices, available, must, size, rule); !slices.Equal(got, want) {
			t.Fatalf("%s: %d of %v with %v: %v uses GPUs as %v, one by one as %v",
				rule, size, available, must, chosen, got, want)
		}
	}
}

// levels is how much of every GPU is in use once chosen is, sorted.
func levels(devices []string, available, chosen []string) []int {
	used := map[string]int{}
	for _, d := range devices {
		used[original(d)] += 0
		if !slices.Contains(available, d) || slices.Contains(chosen, d) {
			used[original(d)]++
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
func greedy(devices, available, must []string, size int, rule Replicas) []int {
	chosen := slices.Clone(must)
	for len(chosen) < size {
		best, bestUsed := "", 0
		for _, id := range available {
			if slices.Contains(chosen, id) {
				continue
			}
			used := 0
			for _, d := range devices {
				if original(d) == original(id) &&
					(!slices.Contains(available, d) || slices.Contains(chosen, d)) {
					used++
				}
			}
			if best == "" || (rule == Packed && used > bestUsed) ||
				(rule == Distributed && used < bestUsed) {
				best, bestUsed = id, used
			}
		}
		chosen = append(chosen, best)
	}
	return levels(devices, available, chosen)
}
