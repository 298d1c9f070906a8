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
	known, err := n.Prepared(n.state.Machine)
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

// Whichever step of a preparation fails, or ends the process or the machine: nothing is left behind, a claim
// that the kubelet knows is prepared with the same devices, all files of claims are whole, and the next call
// does it.
func TestEveryStep(t *testing.T) {
	for _, c := range []struct{ power, inMemory bool }{{false, false}, {true, true}, {true, false}} {
		for _, fault := range disk.Faults {
			n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
			n.allocate(pool.TypeVF, 1)
			other := n.need("other", want{"pairs", pool.TypePair, 1})
			n.ready(other)
			devices := n.prepared(other.UID).Devices
			claim := n.extended("train", [2]int{2, 2})
			step := 1
			for struck := fault; struck != disk.Nothing; step++ {
				if !c.power {
					n.forgetInfos()
				}
				answered := false
				struck = n.disk.During(step, fault, func() {
					answered = n.Prepare(t.Context(), n.state, list(claim))[claim.UID].Err == nil
				})
				n.between()
				if !answered && !struck.Kills() {
					n.check(other) // it failed, and nothing is left
				}
				told := n.prepared(claim.UID)
				n.continues(c.power, c.inMemory)
				if answered {
					n.check(other, claim)
					n.same("devices of the claim", heldBy(n.prepared(claim.UID)), heldBy(told))
				}
				n.check(n.alive()...)
				n.ready(claim, other)
				n.check(other, claim)
				n.same("devices of the other claim", heldBy(n.prepared(other.UID)), heldBy(Claim{Devices: devices}))
				if err := n.end(claim); err != nil {
					t.Fatal(err)
				}
				n.continues(c.power, c.inMemory)
				n.check(other)
				if t.Failed() {
					t.Fatalf("step %d, %+v: %q", step, c, n.disk.Story())
				}
			}
			if !c.power && step < 30 {
				t.Fatalf("%d steps are too few: this shows nothing", step-1)
			}
		}
	}
}

// continues starts a process, after a power failure or without one.
func (n *node) continues(power, inMemory bool) {
	n.t.Helper()
	if power {
		n.powerFails(inMemory)
	} else {
		n.restored()
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

// powerFails ends the machine and starts a new process. The folders of files that a boot restores are in
// memory, or on the disk.
func (n *node) powerFails(inMemory bool) {
	n.t.Helper()
	var dirs []string
	if inMemory {
		dirs = []string{n.CDIDir, n.Host.PairsDir, n.Host.DevinfoDir}
	}
	if err := n.disk.PowerFailure(dirs...); err != nil {
		n.t.Fatal(err)
	}
	n.restored()
}

// Whichever step of a preparation fails, or ends the process: once the kubelet has the answer that the claim
// is prepared, possibly from a new process that wrote nothing, a power failure takes nothing back. The same
// applies to the end of the claim.
func TestPowerFailureAfterTheNextAnswer(t *testing.T) {
	for _, fault := range disk.Faults {
		n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
		claim := n.need("train", want{"pairs", pool.TypePair, 2})
		next := func(struck disk.Fault) {
			if struck.Kills() {
				n.restored()
			}
		}
		for step, more := 1, true; more; step++ {
			struck := n.disk.During(step, fault, func() { n.Prepare(t.Context(), n.state, list(claim)) })
			more = struck != disk.Nothing
			next(struck)
			n.ready(claim)
			n.powerFails(true)
			n.check(claim)
			struck = n.disk.During(step, fault, func() { _ = n.end(claim) })
			more = more || struck != disk.Nothing
			next(struck)
			if err := n.end(claim); err != nil {
				t.Fatal(err)
			}
			n.powerFails(true)
			n.check()
			if t.Failed() {
				t.Fatalf("step %d: %q", step, n.disk.Story())
			}
		}
	}
}

func heldBy(c Claim) (ids []string) {
	for _, d := range c.Devices {
		ids = append(ids, d.Holds()...)
	}
	return ids
}
