// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/disk"
)

// between is what holds at any moment: what has a CDI spec is in the checkpoint.
func (n *node) between() {
	n.t.Helper()
	known, err := n.Prepared()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, name := range names(n.CDIDir) {
		uid, ok := coordination.ClaimOfSpec(name)
		if ok && !(Claim{UID: types.UID(uid)}).isIn(known) {
			n.t.Errorf("%s has a CDI spec and is not in the checkpoint", uid)
		}
	}
}

func (n *node) restored() {
	n.t.Helper()
	if err := n.Restore(n.t.Context(), n.state); err != nil {
		n.t.Fatal(err)
	}
}

// Whatever step of the disk fails, or whenever the process dies, nothing is left behind, and the next call
// does it.
func TestEveryStep(t *testing.T) {
	for _, fault := range disk.Faults {
		n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
		n.allocate(pool.TypeVF, 1)
		other := n.need("other", want{"pairs", pool.TypePair, 1})
		n.ready(other)
		claim := n.extended("train", [2]int{2, 2})
		for step := 1; ; step++ {
			n.forgetInfos()
			answered := false
			struck := n.disk.During(step, fault, func() {
				answered = n.Prepare(t.Context(), n.state, list(claim))[claim.UID].Err == nil
			})
			n.between()
			switch {
			case answered:
				n.check(other, claim)
			case !struck.Kills():
				n.check(other) // it failed, and nothing is left
			}
			n.restored()
			n.check(n.alive()...)
			n.ready(claim)
			n.check(other, claim)
			if err := n.end(claim); err != nil {
				t.Fatal(err)
			}
			if struck == disk.Nothing { // there are no more steps
				if step < 30 {
					t.Fatalf("%d steps are too few: this shows nothing", step-1)
				}
				break
			}
		}
	}
}

// forgetInfos removes the device-info files, which stay when claims end.
func (n *node) forgetInfos() {
	n.t.Helper()
	n.disk.Settle()
	if err := os.RemoveAll(n.Host.DevinfoDir); err != nil {
		n.t.Fatal(err)
	}
}

func TestEveryStepOfTheEnd(t *testing.T) {
	for _, fault := range disk.Faults {
		n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
		other := n.need("other", want{"pairs", pool.TypePair, 1})
		claim := n.need("train", want{"pairs", pool.TypePair, 2})
		n.ready(other)
		for step, struck := 1, fault; struck != disk.Nothing; step++ {
			n.ready(claim)
			var err error
			struck = n.disk.During(step, fault, func() { err = n.end(claim) })
			n.between()
			if !struck.Kills() && (err == nil) != (struck == disk.Nothing) {
				t.Errorf("step %d %v: error %v", step, fault, err)
			}
			if struck.Kills() || step%2 == 0 { // after a failure the process may be a new one or the same
				n.restored()
				n.check(n.alive()...)
			}
			if err := n.end(claim); err != nil {
				t.Fatal(err)
			}
			n.check(other)
		}
	}
}
