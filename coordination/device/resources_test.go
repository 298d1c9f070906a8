// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-k8s/tandem/topology"
)

const gpus = "amd.com/gpu"

// devices announces as many, two to a NUMA node.
func devices(count int) Announcement {
	var a Announcement
	for i := range count {
		address := topology.Address{Bus: 1, Function: uint8(i)}
		a.Devices = append(a.Devices,
			Device{ID: address.String(), Address: address, NUMA: topology.Node(i / 2), Healthy: true})
	}
	return a
}

// Once a plugin of the kind announces, devices of other names whose plugin is gone are not healthy, until
// that plugin is back too.
func TestResourceWithoutPlugin(t *testing.T) {
	t.Parallel()
	const old, anew, other = "a/vf", "b/vf", "c/vf"
	announce := func(s Resources, name string, kind Kind) Resources {
		s, err := s.Announce(name, kind, devices(2))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	healthy := func(s Resources, name string) bool { return s[name].Ordered()[0].Healthy }
	s := announce(announce(announce(Resources{}, old, VF), other, VF), gpus, GPU)
	s = s.Leave(old)
	if s = announce(s, gpus, GPU); !healthy(s, old) {
		t.Error("a plugin of another kind takes them away")
	}
	left := s
	s = announce(s, anew, VF)
	if healthy(s, old) || !healthy(s, other) || !healthy(s, anew) || !healthy(s, gpus) {
		t.Errorf("healthy: %t of the old name, %t of another, %t of the new one, %t GPUs",
			healthy(s, old), healthy(s, other), healthy(s, anew), healthy(s, gpus))
	}
	if !healthy(left, old) {
		t.Error("the set before has changed")
	}
	if s = announce(s, old, VF); !healthy(s, old) {
		t.Error("its plugin is back, and it is not healthy")
	}
}

func TestTooManyResources(t *testing.T) {
	t.Parallel()
	s := Resources{}
	for i := range MaxResources {
		var err error
		if s, err = s.Announce(fmt.Sprint("resource-", i), VF, Announcement{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Announce("one-more", VF, Announcement{}); err == nil {
		t.Error("one more is taken")
	}
	if _, err := s.Announce("resource-0", VF, devices(1)); err != nil {
		t.Errorf("one of them is not: %v", err)
	}
}

// What is saved is what comes back, with nobody connected and nothing healthy.
func TestRestore(t *testing.T) {
	t.Parallel()
	s, err := Resources{}.Announce(gpus, GPU, devices(3))
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(s.Save())
	if err != nil {
		t.Fatal(err)
	}
	var saved []SavedResource
	if err := json.Unmarshal(content, &saved); err != nil {
		t.Fatal(err)
	}
	again, err := RestoreResources(saved)
	if err != nil {
		t.Fatal(err)
	}
	want := devices(3).Devices
	for i := range want {
		want[i] = want[i].Complete()
		want[i].Healthy = false
	}
	if diff := cmp.Diff(want, again[gpus].Ordered(),
		cmpopts.EquateComparable(topology.NUMANode{}, topology.Address{})); diff != "" || again[gpus].Joined {
		t.Errorf("connected %t, devices (-saved +restored):\n%s", again[gpus].Joined, diff)
	}
	for name, wrong := range map[string]SavedResource{
		"no name":    {Kind: GPU, Devices: []byte("[]")},
		"no kind":    {Name: gpus, Devices: []byte("[]")},
		"no devices": {Name: gpus, Kind: GPU},
		"no address": {Name: gpus, Kind: GPU, Devices: []byte(`[{"id":"x","address":"y"}]`)},
	} {
		if _, err := RestoreResources([]SavedResource{wrong}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A device has the unit that its plugin announced, also under an earlier name; of any other device the ID
// tells the unit.
func TestUnitOf(t *testing.T) {
	t.Parallel()
	card := topology.NewUnit(topology.Address{Bus: 0x81}, "", false)
	replica := topology.Unit{Name: card.Name, Shared: true}
	s := Resources{gpus: NewResource(gpus, GPU, []Device{
		{ID: "GPU-1::0", Unit: replica}, {ID: "amdgpu_xcp_3", Unit: topology.Unit{Name: "0000:82:00.0/3"}},
		{ID: "0000:0c:00.1"},
	})}
	for _, c := range []struct {
		resource, id string
		want         topology.Unit
	}{
		{gpus, "GPU-1::0", replica},
		{"earlier/gpu", "GPU-1", card},
		{"earlier/gpu", "GPU-1::7", replica},
		{"earlier/gpu", "amdgpu_xcp_3", topology.Unit{Name: "0000:82:00.0/3"}},
		{gpus, "0000:0c:00.1", topology.Unit{Name: "0000:0c:00.1"}},
		{"another/plugin", "0000:0c:00.7", topology.Unit{Name: "0000:0c:00.7"}},
		{"another/plugin", "3", topology.Unit{Name: "3"}},
	} {
		if got := s.UnitOf(c.resource, c.id); got != c.want {
			t.Errorf("%s %s is unit %v, want %v", c.resource, c.id, got, c.want)
		}
	}
	restored, err := RestoreResources(s.Save())
	if err != nil || restored.UnitOf("earlier/gpu", "GPU-1") != card {
		t.Errorf("restored: %v", err)
	}
}

// The IDs of a resource stay known under the name before.
func TestOfDevice(t *testing.T) {
	t.Parallel()
	s := Resources{}
	for _, name := range []string{"a/vf", "b/vf"} {
		var err error
		if s, err = s.Leave("a/vf").Announce(name, VF, devices(1)); err != nil {
			t.Fatal(err)
		}
	}
	if of := s.OfDevice(devices(1).Devices[0].ID, gpus); of != "b/vf" {
		t.Errorf("the device is of %q", of)
	}
}

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
