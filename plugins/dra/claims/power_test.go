// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"testing"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/disk"
)

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
