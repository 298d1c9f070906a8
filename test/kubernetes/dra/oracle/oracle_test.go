// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/claim"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/node"
)

func read(t *testing.T, name string, vfsPerPF int) pool.Machine {
	t.Helper()
	m, err := node.Read(name, vfsPerPF)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What counting says there is, trying all sets of devices finds too, and nothing else: on machines with
// few GPUs, in any state.
func TestExistsIsWhatTryingAllFinds(t *testing.T) {
	for _, c := range []struct {
		machine  string
		vfsPerPF int
		counters bool
	}{
		{"nv-a100pcie-cx6dx-vf-partial", 2, true}, {"nv-a100pcie-cx6dx-vf-partial", 2, false},
		{"nv-4xrtx6000ada-2cx7", 1, true}, {"oci-mi300x-derived", 1, true}, {"oci-mi300x-derived", 2, false},
		{"amd-mi250-16gcd-8nic", 1, true}, {"amd-mi250-16gcd-8nic", 2, true},
	} {
		m := read(t, c.machine, c.vfsPerPF)
		options := pool.Options{Counters: c.counters}
		o, err := New(m, options, pool.Build(m, options))
		if err != nil {
			t.Fatal(err)
		}
		for seed := range 60 {
			r := rand.New(rand.NewPCG(uint64(seed), 1))
			clear(o.holder)
			o.occupy(r)
			want := counts{r.IntN(4), r.IntN(3), r.IntN(3), 0}
			spec := claim.Spec{Pairs: want[0], GPUs: want[1], VFs: want[2], Distinct: r.IntN(3) == 0}
			if got, tried := o.Exists(spec), o.try(spec, nil, slices.Sorted(maps.Keys(o.devices))); got != tried {
				t.Errorf("%s with %d VFs per PF, seed %d, %v: %t, want %t", c.machine, c.vfsPerPF, seed, spec, got, tried)
			}
		}
	}
}

// occupy lets others have most devices: so many are free that all sets can be tried.
func (o *Oracle) occupy(r *rand.Rand) {
	for _, name := range slices.Sorted(maps.Keys(o.devices)) {
		ids := slices.Concat(o.devices[name].GPUs, o.devices[name].VFs)
		if r.IntN(10) < 6 && !slices.ContainsFunc(ids, func(id string) bool { return o.holder[id] != "" }) {
			for _, id := range ids {
				o.holder[id] = "other"
			}
		}
	}
}

// try goes through all sets of devices that have nothing in common. In a set come the pairs first, then
// the GPUs.
func (o *Oracle) try(s claim.Spec, set []pool.Device, names []string) bool {
	kind, next := pool.TypeVF, s
	switch {
	case s.Pairs > 0:
		kind = pool.TypePair
		next.Pairs--
	case s.GPUs > 0:
		kind = pool.TypeGPU
		next.GPUs--
	case s.VFs > 0:
		next.VFs--
	default:
		return true
	}
	for _, name := range names {
		d := o.devices[name]
		fits := d.Type == kind || d.Type == pool.TypeGPUVF && kind != pool.TypeVF
		taken := func(id string) bool { return o.holder[id] != "" }
		if !fits || slices.ContainsFunc(slices.Concat(d.GPUs, d.VFs), taken) {
			continue
		}
		larger := append(slices.Clone(set), d)
		distinct := !s.Distinct || kind != pool.TypePair || o.distinct(larger)
		if distinct && disjoint(larger) && o.try(next, larger, names) {
			return true
		}
	}
	return false
}

func (o *Oracle) distinct(set []pool.Device) bool {
	switches := map[*group]bool{}
	for _, d := range set {
		switches[o.of[d.GPUs[0]]] = true
	}
	return len(switches) == len(set)
}

// What is wrong with what is published, or with what is found, is said.
func TestFaultsAreFound(t *testing.T) {
	m := read(t, "oci-mi300x-derived", 2)
	options := pool.Options{Counters: true}
	for _, c := range []struct {
		name  string
		spoil func(devices map[string]pool.Device)
		want  string
	}{
		{"a pair over two switches", func(devices map[string]pool.Device) {
			first, other := devices["pair-11-00-0"], devices["pair-2f-00-0"]
			first.VFs, other.VFs = other.VFs, first.VFs
			devices[first.Name], devices[other.Name] = first, other
		}, "not on the switch"},
		{"a VF for two GPUs", func(devices map[string]pool.Device) {
			edit(devices, pool.TypeVF, func(d *pool.Device) { d.VFs = []string{devices["pair-11-00-0"].VFs[0]} })
		}, "are published, want 2"},
		{"a GPU that is not published", func(devices map[string]pool.Device) {
			delete(devices, "gpu-11-00-0")
		}, "publishes map"},
		{"a VF that is not published", func(devices map[string]pool.Device) {
			edit(devices, pool.TypeVF, func(d *pool.Device) { delete(devices, d.Name) })
		}, "are published, want 2"},
	} {
		p := pool.Build(m, options)
		c.spoil(p.Devices)
		if _, err := New(m, options, p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// edit changes the first device of a type by name.
func edit(devices map[string]pool.Device, kind pool.Type, change func(*pool.Device)) {
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		if d := devices[name]; d.Type == kind {
			change(&d)
			if _, kept := devices[name]; kept {
				devices[name] = d
			}
			return
		}
	}
}

func TestWrongAnswersAreFound(t *testing.T) {
	m := read(t, "oci-mi300x-derived", 2)
	options := pool.Options{Counters: true}
	o, err := New(m, options, pool.Build(m, options))
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Take("first", claim.Spec{GPUs: 1}, results("gpus", "gpu-11-00-0")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		spec claim.Spec
		got  []resourceapi.DeviceRequestAllocationResult
		want string
	}{
		{"taken", claim.Spec{Pairs: 1}, results("pairs", "pair-11-00-0"), "first has already"},
		{"too few", claim.Spec{Pairs: 2}, results("pairs", "pair-2f-00-0"), "got [1 0 0 0]"},
		{"of another type", claim.Spec{Pairs: 1}, results("pairs", "gpu-2f-00-0"), "is a gpu"},
		{"not there", claim.Spec{Pairs: 1}, results("pairs", "pair-00-00-0"), "not published"},
		{"over two NUMA nodes", claim.Spec{Pairs: 2, Same: claim.NUMANode},
			results("pairs", "pair-2f-00-0", "pair-8b-00-0"), "pairs of 2"},
		{"far, though there are near ones", claim.Spec{Pairs: 2, Near: true},
			results("pairs/any", "pair-2f-00-0", "pair-8b-00-0"), "enough on one NUMA node"},
	} {
		err := o.Take(c.name, c.spec, c.got)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		o.Release(c.name)
	}
	o.Release("first")
	if err := o.Take("second", claim.Spec{Pairs: 1}, results("pairs", "pair-11-00-0")); err != nil {
		t.Error(err)
	}
}

func results(request string, devices ...string) (list []resourceapi.DeviceRequestAllocationResult) {
	for _, d := range devices {
		list = append(list, resourceapi.DeviceRequestAllocationResult{
			Request: request, Driver: pool.Driver, Device: d,
		})
	}
	return list
}
