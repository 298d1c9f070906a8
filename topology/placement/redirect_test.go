// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
)

// redirectingWorld is a machine with three switches, a GPU and a PF with two VFs on each, every one on a port
// of its own. A port of the first switch redirects; the PF of the second one has a degraded link.
func redirectingWorld() *world {
	w := &world{nodes: 1}
	for i := range uint8(3) {
		at := func(bus uint8) topology.Address { return topology.Address{Bus: 16*(i+1) + bus} }
		add := func(f function) { f.complex = at(0); w.functions = append(w.functions, f) }
		upstream, toGPU, toPF := at(1), at(2), at(3)
		add(function{address: upstream, class: "0x060400"})
		port := function{address: toGPU, bridges: []topology.Address{upstream}, class: "0x060400"}
		if i == 0 {
			port.config = redirecting
		}
		add(port)
		add(function{address: toPF, bridges: []topology.Address{upstream}, class: "0x060400"})
		add(function{address: at(4), bridges: []topology.Address{upstream, toGPU}, class: "0x120000"})
		w.gpus = append(w.gpus, Device{ID: fmt.Sprintf("GPU %d", i), Address: at(4)})
		pf := function{
			address: at(5), bridges: []topology.Address{upstream, toPF}, class: "0x020000", degraded: i == 1,
		}
		add(pf)
		for v := range uint8(2) {
			vf := function{address: at(5), bridges: pf.bridges, class: pf.class, pf: pf.address}
			vf.address.Function = v + 1
			add(vf)
			w.vfs = append(w.vfs, Device{ID: fmt.Sprintf("VF %d.%d", i, v), Address: vf.address})
		}
	}
	return w
}

// TestRedirect: a switch that redirects is as good as any other in all but this, and is taken last.
func TestRedirect(t *testing.T) {
	w := redirectingWorld()
	tree := w.tree(t, same)
	for _, c := range []struct {
		name  string
		gpus  []Device
		vfs   []Device
		n, m  int
		taken []Device // VFs
		want  string
	}{
		{name: "the highest address rather than the redirect or the degraded link", gpus: w.gpus, vfs: w.vfs,
			n: 1, m: 1,
			want: "GPU 2-VF 2.0 PIX. 1 pair: 1 PIX; VFs on 1 PF; " +
				"degraded and not chosen: 0000:25:00.0; 2 same-switch pairs left"},
		{name: "the degraded link rather than the redirect", gpus: w.gpus, vfs: w.vfs, n: 2, m: 2,
			want: "GPU 1-VF 1.0 PIX, GPU 2-VF 2.0 PIX. 2 pairs: 2 PIX; VFs on 2 PFs; " +
				"chosen although degraded: 0000:25:00.0; 1 same-switch pair left"},
		{name: "a detour is said", gpus: w.gpus, vfs: w.vfs, n: 3, m: 3,
			want: "GPU 0-VF 0.0 PIX, GPU 1-VF 1.0 PIX, GPU 2-VF 2.0 PIX. 3 pairs: 3 PIX, 1 of them by way of the " +
				"host bridge (ACS); VFs on 3 PFs; chosen although degraded: 0000:25:00.0; " +
				"0 same-switch pairs left"},
		{name: "the redirect rather than a GPU of another switch", gpus: w.gpus, vfs: w.vfs[:2], n: 1, m: 1,
			taken: w.vfs[2:],
			want: "GPU 0-VF 0.0 PIX. 1 pair: 1 PIX, 1 of them by way of the host bridge (ACS); VFs on 1 PF; " +
				"0 same-switch pairs left"},
		{name: "no other GPU", gpus: w.gpus[:1], vfs: w.vfs, n: 1, m: 1,
			want: "GPU 0-VF 0.0 PIX. 1 pair: 1 PIX, 1 of them by way of the host bridge (ACS); VFs on 1 PF; " +
				"degraded and not chosen: 0000:25:00.0; 0 same-switch pairs left"},
		{name: "nothing to redirect without VFs", gpus: w.gpus, vfs: w.vfs, n: 1,
			want: "GPU 0. 1 GPU on 1 switch; 2 same-switch pairs left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := Request{GPUs: pools(c.gpus, c.n), VFs: pools(c.vfs, c.m), Taken: Devices{VFs: c.taken}}
			choice := mustChoose(t, tree, q)
			if got := inShort(choice) + ". " + choice.Reason; got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			compareWithOracle(t, tree, q)
		})
	}
}
