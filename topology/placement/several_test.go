// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

// byPF asks for a VF of every PF, each PF a resource of its own.
func byPF(vfs []Device, pf func(Device) topology.Address) (halves []Half) {
	at := map[topology.Address]int{}
	for _, d := range vfs {
		i, known := at[pf(d)]
		if !known {
			i = len(halves)
			at[pf(d)] = i
			halves = append(halves, Half{Count: 1})
		}
		halves[i].Free = append(halves[i].Free, d)
	}
	return halves
}

// pools splits what may be chosen into a number of resources, one device each in turn, and asks for the
// numbers given.
func pools(free []Device, counts ...int) []Half {
	halves := make([]Half, len(counts))
	for i, d := range free {
		halves[i%len(counts)].Free = append(halves[i%len(counts)].Free, d)
	}
	for i, n := range counts {
		halves[i].Count = n
	}
	return halves
}

// TestSeveralResources asks recorded machines for several resources of a kind.
func TestSeveralResources(t *testing.T) {
	mi300x := load(t, "oci-mi300x-derived", 2)
	cpx := load(t, "amd-mi300x-smc-thor2-cpx-derived", 4)
	cpx.partition()
	for _, c := range []struct {
		name string
		m    *recorded
		r    Request
		want string
	}{
		{"a VF of every rail", mi300x, Request{GPUs: pools(mi300x.gpus, 8), VFs: byPF(mi300x.vfs, mi300x.pf)},
			"8 pairs: 8 PIX; VFs on 8 PFs; 0 same-switch pairs left"},
		{"four GPUs for the VFs of eight rails", mi300x,
			Request{GPUs: pools(mi300x.gpus, 4), VFs: byPF(mi300x.vfs, mi300x.pf)},
			"8 pairs: 4 PIX, 4 NODE; VFs on 8 PFs; 4 same-switch pairs left"},
		{"two rails choose the GPUs", mi300x,
			Request{GPUs: pools(mi300x.gpus, 2), VFs: byPF(mi300x.vfs[4:8], mi300x.pf)},
			"2 pairs: 2 PIX; VFs on 2 PFs; 0 same-switch pairs left"},
		{"two pools on every PF", mi300x, Request{GPUs: pools(mi300x.gpus, 4), VFs: pools(mi300x.vfs, 2, 2)},
			"4 pairs: 4 PIX; VFs on 4 PFs; 4 same-switch pairs left"},
		{"four kinds of partition on every card", cpx,
			Request{GPUs: pools(cpx.gpus, 3, 2, 2, 1), VFs: pools(cpx.vfs, 4)},
			"8 pairs with 4 VFs: 8 PIX; VFs on 2 PFs; 28 same-switch pairs left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			choice := mustChoose(t, c.m.tree, c.r)
			wellFormed(t, c.r, choice)
			if choice.Reason != c.want {
				t.Errorf("got %s, want %s", choice.Reason, c.want)
			}
		})
	}
}

// pf is the PF of a VF.
func (m *recorded) pf(d Device) topology.Address {
	f, _ := m.tree.Device(d.Address)
	return f.Function()
}
