// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"os"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// The version before has prepared a claim, without units; this version has started, restored the files and
// prepared another claim. After a boot with each other's ID for the partitions of both, no partition is given
// to both.
func TestUpgradeThenBoot(t *testing.T) {
	n := newNode(t, "amd-mi300x-smc-thor2-cpx-derived", 1, plainVFs, true)
	one := want{"gpu", pool.TypeGPU, 1}
	n.need("zero", one)
	first, second := n.need("first", one), n.need("second", one)
	n.ready(first)
	given := n.prepared(first.UID).Devices[0].GPUs[0]
	_, known, err := n.loadClaims()
	if err != nil {
		t.Fatal(err)
	}
	known[0].Devices[0].Units = nil
	content, err := coordination.EncodeClaims(known)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.claimsPath(), content, 0o600); err != nil {
		t.Fatal(err)
	}
	n.Preparer = New(n.Options)
	if err := n.Restore(t.Context(), n.state); err != nil {
		t.Fatal(err)
	}
	n.ready(second)
	before := n.nodesOf(first)
	i := slices.IndexFunc(n.state.Machine.GPUs, func(g pool.GPU) bool { return g.ID == given })
	n.exchangeIDs(i, i+1)
	n.ready(first)
	n.ready(second)
	for _, path := range n.nodesOf(second) {
		if slices.Contains(n.nodesOf(first), path) {
			t.Errorf("both claims are given %s; the first had %v", path, before)
		}
	}
}

// Two partitions have each other's ID after a boot, and the kubelet asks again for a prepared claim. The
// version before, test/before, reads the IDs alone on the way back: they are those of the claim's partition.
func TestRenamedDeviceOnTheWayBack(t *testing.T) {
	n := newNode(t, "amd-mi300x-smc-thor2-cpx-derived", 1, plainVFs, true)
	one := want{"gpu", pool.TypeGPU, 1}
	n.need("zero", one)
	claim := n.need("first", one)
	n.ready(claim)
	given := n.prepared(claim.UID).Devices[0].GPUs[0]
	i := slices.IndexFunc(n.state.Machine.GPUs, func(g pool.GPU) bool { return g.ID == given })
	n.exchangeIDs(i, i+1)
	n.ready(claim)
	content, _, err := n.loadClaims()
	if err != nil {
		t.Fatal(err)
	}
	type claimBefore struct{ Devices []struct{ GPUs []string } }
	read, err := coordination.DecodeClaims[claimBefore](n.claimsPath(), content)
	if err != nil {
		t.Fatal(err)
	}
	if has, now := read[0].Devices[0].GPUs[0], n.state.Machine.GPUs[i].ID; has != now {
		t.Errorf("the claim has partition %s, and the version before reads %s, which is another one", now, has)
	}
}
