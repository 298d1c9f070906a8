// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"github.com/tandem-k8s/tandem/test/machines"
)

// hintsRow counts the recorded machines with a number of VFs a NIC: all, those with hints without the key,
// the containers of k GPUs and k VFs, those refused with hints in any case and without the key, and the near
// pairs lost without the key.
type hintsRow struct {
	machines, hinted, requests, refused, byRule, lost int
}

// TestHintsOfMachines: without the key excludeTopology, no recorded machine refuses a container of k GPUs and
// k VFs while it is empty, and none has fewer near pairs.
func TestHintsOfMachines(t *testing.T) {
	t.Parallel()
	for vfs, want := range map[int]hintsRow{
		1: {17, 7, 101, 23, 0, 0}, 2: {17, 2, 123, 42, 0, 0}, 4: {17, 0, 143, 58, 0, 0}, 8: {17, 0, 166, 66, 0, 0},
	} {
		var row hintsRow
		for _, name := range machines.Names() {
			if m, err := machines.Load(name, vfs); err == nil { // a recording with VFs has its own number
				n, err := ReadFS(m.FS(), &Source{})
				if err != nil {
					t.Fatal(err)
				}
				row.add(t, n)
			}
		}
		if row != want {
			t.Errorf("%d VFs a NIC: %+v, want %+v", vfs, row, want)
		}
	}
}

// add counts the requests of an empty machine: by the rule, and with hints in any case as the stock plugin
// has them. Pairs are lost where both admit the container, and fewer are near by the rule.
func (r *hintsRow) add(t *testing.T, n *Node) {
	t.Helper()
	all, _, err := n.VFPools("")
	if err != nil {
		t.Fatal(err)
	}
	vfs := Devices(all)
	if len(n.GPUDevices()) == 0 || len(vfs) == 0 {
		return
	}
	r.machines++
	for _, vf := range vfs {
		if _, known := vf.NUMA.Number(); known {
			r.hinted++
			break
		}
	}
	hinted := *n
	hinted.Stock = true
	for k := 1; k <= min(len(n.GPUDevices()), len(vfs)); k++ {
		q := Question{GPUs: uint(k), VFs: uint(k)}
		rule, _, err := q.Answer(n)
		if err != nil {
			t.Fatal(err)
		}
		always, _, err := q.Answer(&hinted)
		if err != nil {
			t.Fatal(err)
		}
		r.requests++
		if rule.IsRejected() {
			r.byRule++
		}
		if always.IsRejected() {
			r.refused++
			continue
		}
		r.lost += near(always) - near(rule)
	}
}

// near returns the number of pairs on one switch.
func near(p *Plan) (count int) {
	for _, pair := range p.Pairs {
		if pair.Distance.Direct() {
			count++
		}
	}
	return count
}
