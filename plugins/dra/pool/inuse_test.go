// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/scale"
)

// claim has a claim hold a device.
func claim(options *pool.Options, d pool.Device) {
	options.Bound, options.InUse = maps.Clone(options.Bound), maps.Clone(options.InUse)
	if options.InUse == nil {
		options.Bound, options.InUse = map[string]string{}, map[string]string{}
	}
	for _, id := range slices.Concat(d.GPUs, d.VFs) {
		options.InUse[id] = d.Name
	}
	if len(d.VFs) == 1 {
		options.Bound[d.Name] = d.VFs[0]
	}
}

// offered are the devices that the scheduler could allocate although a claim has something of them: it knows
// the published devices that claims have, and what these take of counters, of which each has one.
func offered(p pool.Pool, options pool.Options) (names []string) {
	claimed, taken := map[string]bool{}, map[string]bool{}
	for name := range options.Bound {
		claimed[name] = true
	}
	for _, name := range options.InUse {
		claimed[name] = true
	}
	each := func(do func(d resourceapi.Device, counters []string)) {
		for _, slice := range p.Slices {
			for _, d := range slice.Devices {
				var counters []string
				for _, set := range d.ConsumesCounters {
					for counter := range set.Counters {
						counters = append(counters, set.CounterSet+"/"+counter)
					}
				}
				do(d, counters)
			}
		}
	}
	each(func(d resourceapi.Device, counters []string) {
		for _, counter := range counters {
			taken[counter] = taken[counter] || claimed[d.Name]
		}
	})
	each(func(d resourceapi.Device, counters []string) {
		has := slices.Concat(p.Devices[d.Name].GPUs, p.Devices[d.Name].VFs)
		isInUse := func(id string) bool { return options.InUse[id] != "" }
		isTaken := func(counter string) bool { return taken[counter] }
		if len(d.Taints) == 0 && !claimed[d.Name] && !slices.ContainsFunc(counters, isTaken) &&
			slices.ContainsFunc(has, isInUse) {
			names = append(names, d.Name)
		}
	})
	return names
}

// A GPU that a claim has is not offered where the device by which it does is published no more.
func TestGPUsOfClaimsAreNotOffered(t *testing.T) {
	t.Parallel()
	without := func(m *pool.Machine, gone func(pool.VF) bool) {
		m.VFs = slices.DeleteFunc(slices.Clone(m.VFs), gone)
	}
	for name, c := range map[string]struct {
		machine, device string
		vfs             int
		options         pool.Options
		change          func(*pool.Machine, *pool.Options)
		tainted         []string // nil for left out
	}{
		"its VF is lost": {"oci-mi300x-derived", "pair-11-00-0-0c-00-1", 1, sharing,
			func(m *pool.Machine, _ *pool.Options) {
				without(m, func(vf pool.VF) bool { return vf.ID == "0000:0c:00.1" })
			}, []string{"gpu-11-00-0"}},
		"a boot before VFs": {"oci-mi300x-derived", "pair-11-00-0", 4, sharing,
			func(m *pool.Machine, _ *pool.Options) { m.VFs = nil }, []string{"gpu-11-00-0"}},
		"counters are off": {"oci-mi300x-derived", "pair-11-00-0", 4, sharing,
			func(_ *pool.Machine, o *pool.Options) { o.Counters = false }, []string{"gpu-vf-11-00-0"}},
		"its VF is lost without counters": {"oci-mi300x-derived", "gpu-vf-11-00-0", 1, pool.Options{Taints: true},
			func(m *pool.Machine, _ *pool.Options) {
				without(m, func(vf pool.VF) bool { return vf.ID == "0000:0c:00.1" })
			}, []string{"gpu-11-00-0"}},
		"taints too": {"oci-mi300x-derived", "pair-11-00-0", 4, sharing,
			func(_ *pool.Machine, o *pool.Options) { o.Counters, o.Taints = false, false }, nil},
		"no bundles": {"amd-mi300x-smc-thor2-cpx-derived", "bundle-05-00-0", 16, sharing,
			func(_ *pool.Machine, o *pool.Options) { o.Counters, o.Taints = false, false }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			machine, options := load(t, c.machine, c.vfs), c.options
			before := pool.Build(machine, options)
			has, ok := before.Devices[c.device]
			if !ok {
				t.Fatalf("no such device; there are %v", published(before))
			}
			claim(&options, has)
			p := pool.Build(machine, options)
			for _, slice := range p.Slices {
				for _, d := range slice.Devices {
					if len(d.Taints) > 0 {
						t.Errorf("while %s is published %s has the taints %v", c.device, d.Name, d.Taints)
					}
				}
			}
			c.change(&machine, &options)
			p = pool.Build(machine, options)
			if found := offered(p, options); len(found) > 0 {
				t.Errorf("a claim has %s, and offered are %v", c.device, found)
			}
			for _, name := range c.tainted {
				taints := device(t, p, name).Taints
				if len(taints) != 1 || taints[0].Key != pool.TaintInUse || taints[0].Value != c.device {
					t.Errorf("%s has the taints %v", name, taints)
				}
			}
		})
	}
}

// Whatever becomes of a machine and its cluster while claims have devices, nothing of theirs is offered.
func TestNothingOfClaimsIsOffered(t *testing.T) {
	t.Parallel()
	held := 0
	rounds := scale.Rounds(60)
	for seed := range uint64(rounds) {
		random := rand.New(rand.NewPCG(seed, 1))
		names := machines.Names()
		read := load(t, names[random.IntN(len(names))], []int{1, 2, 4, 8}[random.IntN(4)])
		machine, options := disturbed(random, read)
		before := pool.Build(machine, options)
		all := slices.Sorted(maps.Keys(before.Devices))
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		later, now := disturbed(random, read)
		for _, name := range allocate(before, all[:len(all)/3]) {
			claim(&now, before.Devices[name])
			held++
		}
		if found := offered(pool.Build(later, now), now); len(found) > 0 {
			t.Errorf("seed %d: %v", seed, found)
		}
	}
	if held < 2*rounds {
		t.Errorf("%d devices are too few: this shows nothing", held)
	}
}

// While pods of device plugins end, claims come and go: a VF that was published by itself when a claim was
// allocated it does not become part of a pair before the claim is prepared.
func TestAllocatedVFsStayOutOfPairs(t *testing.T) {
	t.Parallel()
	waited, rounds := 0, scale.Rounds(150)
	for seed := range uint64(rounds) {
		random := rand.New(rand.NewPCG(seed, 2))
		names := []string{"oci-mi300x-derived", "amd-mi300x-smc-thor2-cpx-derived", "nv-h100-oci", "nv-h800-8x8"}
		machine := load(t, names[random.IntN(len(names))], []int{2, 3, 4, 8, 16}[random.IntN(5)])
		machine.GPUs, machine.VFs = slices.Clone(machine.GPUs), slices.Clone(machine.VFs)
		for i := range machine.GPUs {
			if random.IntN(2) == 0 {
				machine.GPUs[i].Held = "pod team/old, by a device plugin"
			}
		}
		for i := range machine.VFs {
			if random.IntN(3) == 0 {
				machine.VFs[i].Held = "pod team/old, by a device plugin"
			}
		}
		m := migration{machine: machine, random: random, waiting: map[string]pool.Device{}}
		for range 12 {
			m.step(t)
			waited += len(m.waiting)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if waited < 7*rounds {
		t.Errorf("%d waiting claims are too few: this shows nothing", waited)
	}
}

// migration is a node on which pods of device plugins end.
type migration struct {
	machine  pool.Machine
	random   *rand.Rand
	waiting  map[string]pool.Device // allocated, not prepared, by name
	prepared []pool.Device
}

func (m *migration) step(t *testing.T) {
	t.Helper()
	m.machine.GPUs, m.machine.VFs = slices.Clone(m.machine.GPUs), slices.Clone(m.machine.VFs)
	for i := range m.machine.GPUs {
		if m.random.IntN(6) == 0 {
			m.machine.GPUs[i].Held = ""
		}
	}
	for i := range m.machine.VFs {
		if m.random.IntN(6) == 0 {
			m.machine.VFs[i].Held = ""
		}
	}
	options := sharing
	for _, d := range m.prepared {
		claim(&options, d)
	}
	p := pool.Build(m.machine, options)
	for _, waits := range m.waiting {
		for name, d := range p.Devices {
			if name == waits.Name || waits.Type != pool.TypeVF || !slices.Contains(d.VFs, waits.VFs[0]) {
				continue
			}
			if _, published := p.Devices[waits.Name]; !published || len(allocate(p, []string{waits.Name, name})) == 2 {
				t.Errorf("%s is allocated, and part of %s", waits.Name, name)
			}
		}
	}
	for name := range m.waiting { // prepared as it is now
		if m.random.IntN(3) == 0 {
			m.prepared = append(m.prepared, p.Devices[name])
			delete(m.waiting, name)
		}
	}
	m.prepared = slices.DeleteFunc(m.prepared, func(pool.Device) bool { return m.random.IntN(5) == 0 })
	m.allocate(p)
}

// allocate has claims be allocated some of what is published without a taint, beside what claims have.
func (m *migration) allocate(p pool.Pool) {
	var names []string
	for name := range m.waiting {
		names = append(names, name)
	}
	for _, d := range m.prepared {
		names = append(names, d.Name)
	}
	taken := len(names)
	for _, slice := range p.Slices {
		for _, d := range slice.Devices {
			_, waits := m.waiting[d.Name]
			if len(d.Taints) == 0 && !waits && m.random.IntN(6) == 0 && !slices.Contains(names, d.Name) {
				names = append(names, d.Name)
			}
		}
	}
	for _, name := range allocate(p, names) {
		if !slices.Contains(names[:taken], name) {
			m.waiting[name] = p.Devices[name]
		}
	}
}
