// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
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
