// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// Two partitions have each other's ID now, as after a boot, and a claim has the first: Prepare refuses that
// one to other claims and gives them the second. What people are told, and what is published, is the same.
func TestHolderOfRenamedDevice(t *testing.T) {
	t.Parallel()
	e := newEarlier(t, smc, 0)
	first, second := &e.machine.GPUs[1], &e.machine.GPUs[2]
	was := first.ID
	first.ID, second.ID = second.ID, first.ID
	e.look()
	var names [2]string // of the devices of the partitions alone
	for name, d := range e.view.State.Pool.Devices {
		if d.Type == pool.TypeGPU && d.GPUs[0] == first.ID {
			names[0] = name
		} else if d.Type == pool.TypeGPU && d.GPUs[0] == second.ID {
			names[1] = name
		}
	}
	claim := claims.Claim{UID: "uid", Namespace: "team", Name: "first", Devices: []claims.Prepared{{
		Device: names[0], GPUs: []string{was}, Units: map[string]string{was: first.Unit().Name},
	}}}
	e.prepared = []claims.Claim{claim}
	e.look()
	content, err := coordination.EncodeClaims(e.prepared)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(e.preparer.Dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(e.preparer.Dir, claims.FileName), content, 0o600); err != nil {
		t.Fatal(err)
	}
	p := newParts(Config{})
	p.preparer = e.preparer
	tells := &teller{parts: p, owners: newOwners()}
	told := map[string]bool{}
	for _, r := range tells.listResources(e.view) {
		for _, d := range r.GetDevices() {
			told[d.GetDevice().GetId()] = d.GetAllocated()
		}
	}
	for i, id := range []string{first.ID, second.ID} {
		refused := e.prepare(names[i])
		if told[id] != (refused != nil) {
			t.Errorf("%s is told as allocated: %t, and Prepare says %v", names[i], told[id], refused)
		}
	}
	for _, s := range e.view.State.Pool.Slices {
		for _, d := range s.Devices {
			if len(d.Taints) > 0 {
				t.Errorf("%s is published with %v", d.Name, d.Taints)
			}
		}
	}
}
