// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

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
