// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// While pods of device plugins end, claims come and go: a VF that was published by itself when a claim was
// allocated it does not become part of a pair before the claim is prepared.
func TestAllocatedVFsStayOutOfPairs(t *testing.T) {
	t.Parallel()
	waited := 0
	for seed := range uint64(150) {
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
	if waited < 1000 {
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
