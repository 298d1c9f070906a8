// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/dra/pool"
)

// frail is a disk that fails or dies at one write, of those that change a file.
type frail struct {
	disk
	left int // writes until then
	how  manner
}

type manner int

const (
	fails       manner = iota // the write fails, the process goes on
	diesBefore                // the process is killed before the write
	diesAfter                 // and after it
	nothing                   // happens
	manners     = int(nothing)
	unreachable = 1 << 30
)

var errDisk = errors.New("no space left on device")

// killed is what a process that was killed panics with: nothing that would be deferred in it may matter.
type killed struct{}

func (f *frail) at(write func() error) error {
	f.left--
	if f.left != 0 {
		return write()
	}
	switch f.how {
	case fails:
		return errDisk
	case diesBefore:
		panic(killed{})
	case diesAfter:
		_ = write()
		panic(killed{})
	default:
		return write()
	}
}

func (f *frail) keep(name string, content []byte) error {
	return f.at(func() error { return f.disk.keep(name, content) })
}

func (f *frail) replace(name string, content []byte) error {
	return f.at(func() error { return f.disk.replace(name, content) })
}

func (f *frail) remove(name string) error {
	return f.at(func() error { return f.disk.remove(name) })
}

// quick is a disk that does not wait for the disk.
type quick struct{ files }

func (q quick) keep(name string, content []byte) error { return q.replace(name, content) }

// during has something happen at a write, and reports whether it has killed the process.
func (n *node) during(how manner, write int, do func()) (dead bool) {
	n.files.disk = &frail{disk: quick{}, left: write, how: how}
	defer func() {
		n.files.disk = quick{}
		if gone := recover(); gone != nil {
			if gone != (killed{}) {
				panic(gone)
			}
			dead = true
		}
	}()
	do()
	return false
}

// between is what holds at any moment: what has a CDI spec is in the checkpoint.
func (n *node) between() {
	n.t.Helper()
	known, err := n.Prepared()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, name := range names(n.CDIDir) {
		uid, _ := claimOfSpec(name)
		if !(Claim{UID: uid}).in(known) {
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

// Whatever write fails, or whenever the process dies, nothing is left behind, and the next call does it.
func TestEveryWrite(t *testing.T) {
	for how := range manner(manners) {
		for write := 1; ; write++ {
			n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
			n.allocate(pool.VF, 1)
			other := n.need("other", want{"pairs", pool.Pair, 1})
			n.ready(other)
			claim, answered := n.extended("train", [2]int{2, 2}), false
			dead := n.during(how, write, func() {
				answer := n.Prepare(t.Context(), n.state, list(claim))[claim.UID]
				answered = answer.Err == nil
			})
			n.between()
			switch {
			case answered:
				n.check(other, claim)
			case !dead:
				n.check(other) // it failed, and nothing is left
			}
			if answered && !dead { // there are no more writes
				if write < 3 {
					t.Fatalf("%d writes are too few: this shows nothing", write-1)
				}
				break
			}
			n.restored()
			n.check(n.alive()...)
			n.ready(claim)
			n.check(other, claim)
		}
	}
}

func TestEveryWriteOfTheEnd(t *testing.T) {
	for how := range manner(manners) {
		for write := 1; write < 4; write++ {
			n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
			other := n.need("other", want{"pairs", pool.Pair, 1})
			claim := n.need("train", want{"pairs", pool.Pair, 2})
			n.ready(other)
			n.ready(claim)
			var err error
			dead := n.during(how, write, func() { err = n.end(claim) })
			n.between()
			if !dead && err == nil {
				t.Errorf("%v at write %d: no error", how, write)
			}
			if write%2 == 0 { // the process may be a new one or the same
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
	how, write := nothing, unreachable
	if d.random.IntN(3) == 0 {
		how, write = manner(d.random.IntN(manners)), 1+d.random.IntN(4)
	}
	switch i := d.random.IntN(max(1, len(d.claims))); {
	case d.random.IntN(10) == 0:
		d.restored()
	case len(d.claims) < 3 || d.random.IntN(2) == 0:
		d.begin(how, write)
	default:
		claim := d.claims[i]
		var err error
		if dead := d.during(how, write, func() { err = d.end(claim) }); dead || err != nil {
			d.again(func() { err = d.end(claim) })
		}
		if err != nil {
			d.t.Fatal(err)
		}
		d.claims = slices.Delete(d.claims, i, i+1)
	}
	d.prepareAgain()
}

// begin prepares a claim of some kind. One that dies on the way is prepared again, or given up.
func (d *disorder) begin(how manner, write int) {
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
		if err != nil && !errors.Is(err, errDisk) {
			d.t.Fatalf("prepare %s: %v", name, err)
		}
	}
	if d.during(how, write, prepare) && d.random.IntN(2) == 0 {
		d.again(func() {
			if err := d.end(claim); err != nil {
				d.t.Fatal(err)
			}
		})
		return
	}
	d.claims = append(d.claims, claim)
	d.again(prepare)
}

// again is what the kubelet does after a failure, before or after the process has started anew.
func (d *disorder) again(do func()) {
	d.between()
	if d.random.IntN(2) == 0 {
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
