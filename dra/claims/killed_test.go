// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/tandem-k8s/tandem/dra/pool"
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
		uid, ok := claimOfSpec(name)
		if ok && !(Claim{UID: uid}).in(known) {
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
		n.allocate(pool.VF, 1)
		other := n.need("other", want{"pairs", pool.Pair, 1})
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
		other := n.need("other", want{"pairs", pool.Pair, 1})
		claim := n.need("train", want{"pairs", pool.Pair, 2})
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

// Claims come and go in any order, processes die, writes fail, the node boots: a device is always one
// claim's, and the files are those of the claims.
func TestAnyOrder(t *testing.T) {
	for seed := range uint64(6) {
		machine := []string{"oci-mi300x-derived", "amd-mi300x-smc-thor2-cpx-derived", "nv-h800-8x8"}[seed%3]
		t.Run(fmt.Sprintf("%s/%d", machine, seed), func(t *testing.T) {
			t.Parallel()
			d := &disorder{
				node:   newNode(t, machine, 1+int(seed)%4, toldVFs, seed%4 != 3),
				random: rand.New(rand.NewPCG(seed, 0)),
			}
			for range 60 {
				d.step()
				d.check(d.alive()...)
				if t.Failed() {
					t.FailNow()
				}
			}
			for _, claim := range d.claims {
				if err := d.end(claim); err != nil {
					t.Error(err)
				}
			}
			d.check()
			if d.begun < 15 {
				t.Errorf("%d claims are too few: this shows nothing", d.begun)
			}
		})
	}
}

// disorder is a node on which anything happens.
type disorder struct {
	*node
	random *rand.Rand
	claims []*claimOf // that were allocated and have not ended
	begun  int
}

func (d *disorder) step() {
	fault, step := disk.Nothing, 0
	if d.random.IntN(3) == 0 {
		fault, step = disk.Faults[d.random.IntN(len(disk.Faults))], 1+d.random.IntN(30)
	}
	switch i := d.random.IntN(max(1, len(d.claims))); {
	case d.random.IntN(10) == 0:
		d.restored()
	case len(d.claims) < 3 || d.random.IntN(2) == 0:
		d.begin(fault, step)
	default:
		claim := d.claims[i]
		var err error
		struck := d.disk.During(step, fault, func() { err = d.end(claim) })
		if struck.Kills() || err != nil {
			d.again(struck, func() { err = d.end(claim) })
		}
		if err != nil {
			d.t.Fatal(err)
		}
		d.claims = slices.Delete(d.claims, i, i+1)
	}
	d.prepareAgain()
}

// begin prepares a claim of some kind. One that dies on the way is prepared again, or given up.
func (d *disorder) begin(fault disk.Fault, step int) {
	d.begun++
	name, count := fmt.Sprint("claim-", d.begun), 1+d.random.IntN(4)
	var claim *claimOf
	switch d.random.IntN(4) {
	case 0:
		claim = d.claim(name, want{"pairs", pool.Pair, count})
	case 1:
		claim = d.claim(name, want{"vfs", pool.VF, count})
	case 2:
		claim = d.claim(name, want{"bundle", pool.Bundle, 1})
	default:
		claim = d.extended(name, [2]int{count, count}, [2]int{1, 1})
	}
	if claim == nil {
		return
	}
	prepare := func() {
		err := d.Prepare(d.t.Context(), d.state, list(claim))[claim.UID].Err
		if err != nil && !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOSPC) {
			d.t.Fatalf("prepare %s: %v", name, err)
		}
	}
	struck := d.disk.During(step, fault, prepare)
	if struck.Kills() && d.random.IntN(2) == 0 {
		d.again(struck, func() {
			if err := d.end(claim); err != nil {
				d.t.Fatal(err)
			}
		})
		return
	}
	d.claims = append(d.claims, claim)
	d.again(struck, prepare)
}

// again is what the kubelet does after a failure, before or after the process has started anew; after the end
// of the process always after.
func (d *disorder) again(struck disk.Fault, do func()) {
	d.between()
	if struck.Kills() || d.random.IntN(2) == 0 {
		d.restored()
	}
	do()
}

// prepareAgain prepares what is prepared: it stays the same.
func (d *disorder) prepareAgain() {
	if len(d.claims) == 0 {
		return
	}
	claim := d.claims[d.random.IntN(len(d.claims))]
	before := fmt.Sprint(d.prepared(claim.UID))
	d.ready(claim)
	if after := fmt.Sprint(d.prepared(claim.UID)); after != before {
		d.t.Errorf("prepared as %s, then as %s", before, after)
	}
}
