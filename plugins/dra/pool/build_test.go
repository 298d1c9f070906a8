// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/machines"
)

// FuzzBuild publishes machines of which something is gone, broken or held, on all kinds of clusters.
func FuzzBuild(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		names := machines.Names()
		read := load(t, names[random.IntN(len(names))], []int{0, 1, 2, 4, 8}[random.IntN(5)])
		machine, options := disturbed(random, read)
		options.Bound = bound(random, pool.Build(machine, options))
		p := pool.Build(machine, options)
		check(t, p, options)
		checkBound(t, p, options)
		checkSharing(t, machine, options)
		if diff := cmp.Diff(p, pool.Build(machine, options)); diff != "" {
			t.Errorf("the same machine is published differently: %s", diff)
		}
	})
}

// disturbed is a machine less some devices, with others that are broken or held, on a cluster.
func disturbed(random *rand.Rand, m pool.Machine) (pool.Machine, pool.Options) {
	const odds = 6 // one in so many
	m.GPUs, m.VFs = slices.Clone(m.GPUs), slices.Clone(m.VFs)
	m.GPUs = slices.DeleteFunc(m.GPUs, func(pool.GPU) bool { return random.IntN(odds) == 0 })
	m.VFs = slices.DeleteFunc(m.VFs, func(pool.VF) bool { return random.IntN(odds) == 0 })
	for i := range m.GPUs {
		m.GPUs[i].Healthy = random.IntN(odds) > 0
		if random.IntN(odds) == 0 {
			m.GPUs[i].Held = "pod team/train-0, by the device plugin"
		}
	}
	for i := range m.VFs {
		if random.IntN(odds) == 0 {
			m.VFs[i].Fault = "gone: it was at the end of a very long sentence, which says more than a label may say"
		}
		if random.IntN(odds) == 0 {
			m.VFs[i].Held = "pod team/train-0, by the device plugin"
		}
	}
	return m, pool.Options{
		Counters: random.IntN(2) == 0, Taints: random.IntN(2) == 0, VFsPerPF: random.IntN(5),
		PairsAsVFs: random.IntN(2) == 0,
	}
}

// bound has claims hold some of what can be allocated together.
func bound(random *rand.Rand, p pool.Pool) map[string]string {
	names := slices.Sorted(maps.Keys(p.Devices))
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	bound := map[string]string{}
	for _, name := range allocate(p, names[:len(names)/3]) {
		if d := p.Devices[name]; len(d.VFs) == 1 {
			bound[name] = d.VFs[0]
		}
	}
	return bound
}

// checkBound finds claims that would lose what they have, or share it.
func checkBound(t *testing.T, p pool.Pool, options pool.Options) {
	t.Helper()
	for name, vf := range options.Bound {
		d, ok := p.Devices[name]
		if !ok {
			t.Errorf("%s is in use and is no longer published", name)
			continue
		}
		if !slices.Contains(d.VFs, vf) {
			t.Errorf("%s has the VF %s and is published with %v", name, vf, d.VFs)
		}
	}
}

func TestDevicesThatShareAreNotAllocatedTogether(t *testing.T) {
	t.Parallel()
	everywhere(t, few, func(t *testing.T, machine pool.Machine, options pool.Options) {
		checkSharing(t, machine, options)
	})
}

// checkSharing compares every two devices that can be allocated together, and some random orders.
func checkSharing(t testing.TB, machine pool.Machine, options pool.Options) {
	t.Helper()
	p := pool.Build(machine, options)
	all := slices.Sorted(maps.Keys(p.Devices))
	holders := map[string][]string{}
	for _, name := range all {
		for _, id := range slices.Concat(p.Devices[name].GPUs, p.Devices[name].VFs) {
			holders[id] = append(holders[id], name)
		}
	}
	for id, names := range holders {
		for i, a := range names {
			for _, b := range names[i+1:] {
				if len(allocate(p, []string{a, b})) == 2 {
					t.Errorf("%s and %s can be allocated together and both have %s", a, b, id)
				}
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		taken := map[string]string{}
		for _, name := range allocate(p, all) {
			for _, id := range slices.Concat(p.Devices[name].GPUs, p.Devices[name].VFs) {
				if taken[id] != "" {
					t.Fatalf("%s and %s are allocated together and both have %s", taken[id], name, id)
				}
				taken[id] = name
			}
		}
		// what no device in use has can be had: nothing is kept apart without a reason
		for _, name := range all {
			d := p.Devices[name]
			free := !slices.ContainsFunc(slices.Concat(d.GPUs, d.VFs), func(id string) bool { return taken[id] != "" })
			if free {
				t.Errorf("%s has nothing that is in use, and was not allocated", name)
			}
		}
	}
}

func TestPairsAreOfOneSwitch(t *testing.T) {
	t.Parallel()
	everywhere(t, few, func(t *testing.T, machine pool.Machine, options pool.Options) {
		gpus, vfs := map[string]pool.GPU{}, map[string]pool.VF{}
		for _, gpu := range machine.GPUs {
			gpus[gpu.ID] = gpu
		}
		for _, vf := range machine.VFs {
			vfs[vf.ID] = vf
		}
		paired := map[string]bool{}
		for name, d := range pool.Build(machine, options).Devices {
			for i, id := range d.VFs {
				if len(d.GPUs) == 0 {
					continue
				}
				gpu, vf := gpus[d.GPUs[i]], vfs[id]
				paired[gpu.ID] = true
				if level := machine.Tree.Distance(gpu.Card, vf.Address).Level; !level.Direct() {
					t.Errorf("%s: %s and %s are %s to each other", name, gpu.ID, vf.ID, level)
				}
			}
		}
		for _, gpu := range machine.GPUs {
			near := slices.ContainsFunc(machine.VFs, func(vf pool.VF) bool {
				return machine.Tree.Distance(gpu.Card, vf.Address).Level.Direct()
			})
			enough := 0 // as many VFs of the switch as GPUs
			for _, other := range machine.GPUs {
				if other.Switch == gpu.Switch {
					enough--
				}
			}
			for _, vf := range machine.VFs {
				if vf.Switch == gpu.Switch {
					enough++
				}
			}
			if near && !paired[gpu.ID] && enough >= 0 {
				t.Errorf("%s has VFs enough on its switch and is in no pair", gpu.ID)
			}
		}
	})
}

func TestEveryDeviceIsPublished(t *testing.T) {
	t.Parallel()
	everywhere(t, few, func(t *testing.T, machine pool.Machine, options pool.Options) {
		published := map[string]bool{}
		for _, d := range pool.Build(machine, options).Devices {
			for _, id := range slices.Concat(d.GPUs, d.VFs) {
				published[id] = true
			}
		}
		if want := len(machine.GPUs) + len(machine.VFs); len(published) != want {
			t.Errorf("%d GPUs and VFs are published, the machine has %d", len(published), want)
		}
	})
}

func BenchmarkBuild(b *testing.B) {
	for _, c := range []struct {
		machine      string
		vfs, limited int
	}{
		{"oci-mi300x-derived", 8, 0},
		{"oci-mi300x-derived", 127, 8},
		{"oci-mi300x-derived", 127, 0},
		{"amd-mi250-16gcd-8nic", 8, 0},
		{"amd-mi300x-smc-thor2-cpx-derived", 8, 0},
	} {
		machine := load(b, c.machine, c.vfs)
		options := sharing
		options.VFsPerPF = c.limited
		name := fmt.Sprintf("gpus=%d/vfs=%d/per-pf=%d", len(machine.GPUs), len(machine.VFs), c.limited)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				pool.Build(machine, options)
			}
		})
	}
}
