// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/disk"
)

// Claims come and go in any order, processes die, writes fail, the node boots: a device is always one
// claim's, and the files are those of the claims. Where each GPU has a VF of its own all pairs of a claim of
// extended resources are on one switch each.
func TestAnyOrder(t *testing.T) {
	points := disk.Points(FileName, disk.Durable)
	for _, kind := range []string{"cdi file", "devinfo file", "pairs file"} {
		points = append(points, disk.Points(kind, disk.Write)...)
	}
	t.Parallel()
	disk.Simulate(t, points, func(t *testing.T, faulty *disk.Disk, random *rand.Rand) {
		machines := []string{"oci-mi300x-derived", "amd-mi300x-smc-thor2-cpx-derived", "nv-h800-8x8"}
		machine := machines[random.IntN(len(machines))]
		d := &disorder{
			node:   newNodeOn(t, faulty, machine, 1+random.IntN(4), toldVFs, random.IntN(4) != 0),
			random: random,
		}
		for range 100 {
			d.step()
			d.check(d.claims...)
			if t.Failed() {
				return
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

// disorder is a node on which anything happens.
type disorder struct {
	*node
	random *rand.Rand
	claims []*claimOf // that were allocated and have not ended
	begun  int
}

func (d *disorder) step() {
	switch i := d.random.IntN(max(1, len(d.claims))); {
	case d.random.IntN(10) == 0:
		d.starts()
	case d.random.IntN(10) == 0:
		d.powerFails(d.random.IntN(2) == 0)
	case len(d.claims) < 3 || d.random.IntN(2) == 0:
		d.begin()
	default:
		claim := d.claims[i]
		var err error
		struck := d.disk.Randomly(func() { err = d.end(claim) })
		if struck.Kills() || err != nil {
			d.again(struck, func() { err = d.end(claim) })
		}
		if err != nil {
			d.t.Fatal(err)
		}
		d.claims = slices.Delete(d.claims, i, i+1)
	}
	d.prepareAgain()
	if len(disk.Leftovers(filepath.Dir(d.Dir)+"/*")) > 0 { // of a write whose end failed as well
		d.restored()
	}
}

// starts starts processes with faults until one of them has restored all files.
func (d *disorder) starts() {
	for again := true; again; {
		struck := d.disk.Randomly(func() { again = d.Restore(d.t.Context(), d.state) != nil })
		again = again || struck.Kills()
	}
}

// begin prepares a claim of some kind. One that dies on the way is prepared again, or given up.
func (d *disorder) begin() {
	d.begun++
	name := fmt.Sprint("claim-", d.begun)
	claim := d.anyClaim(name)
	if claim == nil {
		return
	}
	prepare := func() {
		err := d.Prepare(d.t.Context(), d.state, list(claim))[claim.UID].Err
		if err != nil && !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOSPC) {
			d.t.Fatalf("prepare %s: %v", name, err)
		}
	}
	struck := d.disk.Randomly(prepare)
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
	isReserved := len(newDecision(d.state, nil, nil).reservedVFs()) == len(d.state.Machine.GPUs)
	if claim.Annotations != nil && isReserved {
		d.aligned(claim, len(driverResults(claim))/2)
	}
}

// anyClaim makes a claim of some kind, nil without enough devices.
func (d *disorder) anyClaim(name string) *claimOf {
	count := 1 + d.random.IntN(4)
	switch d.random.IntN(4) {
	case 0:
		return d.claim(name, want{"pairs", pool.TypePair, count})
	case 1:
		return d.claim(name, want{"vfs", pool.TypeVF, count})
	case 2:
		return d.claim(name, want{"bundle", pool.TypeBundle, 1})
	default:
		return d.extended(name, [2]int{count, count}, [2]int{1, 1})
	}
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
