// SPDX-License-Identifier: Apache-2.0

// Package disk is a disk for tests, with faults at chosen steps and with power failures. The files are real
// files; the disk knows in addition which contents and names were synced, and takes back others at a power
// failure. Random choices depend on the seed alone.
//
// A failpoint is a step on a kind of files: "claims.json: rename". The disk counts visits and faults of each.
package disk

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// Disk is a disk. One process at a time uses the disk, from any number of goroutines.
type Disk struct {
	Delay time.Duration // of a slow step

	mu      sync.Mutex
	random  *rand.Rand
	kinds   map[string]string // of files, by folder
	folders map[string]*journal
	open    []io.Closer // of the current process
	plan    plan
	dead    bool
	story   []string
	counts  Counts
}

// plan has the faults of the future: at the step of a number, and at the next visits of failpoints.
type plan struct {
	steps  int // until the fault, including its own
	fault  Fault
	aims   map[string]Fault
	struck Fault // the last fault that has happened
	panics bool  // a kill panics
}

// New returns a disk without faults.
func New(seed uint64) *Disk {
	return &Disk{
		random: rand.New(rand.NewPCG(seed, 34)), kinds: map[string]string{}, folders: map[string]*journal{},
		counts: Counts{},
	}
}

// Name gives the files of a folder the name of their kind, which otherwise is the name of the folder.
func (d *Disk) Name(dir, kind string) { d.kinds[dir] = kind }

// Disk returns the disk for the product.
func (d *Disk) Disk() system.Disk { return system.Disk{Open: d.openFolder} }

// At makes a fault happen at the step of this number from now on, the first being 1.
func (d *Disk) At(step int, fault Fault) { d.prepare(plan{steps: step, fault: fault}) }

func (d *Disk) prepare(p plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan = p
}

// Struck returns the last fault since At; Nothing for none.
func (d *Disk) Struck() Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.plan.struck
}

// During makes a fault happen at a step of a function that makes all steps in its own goroutine, and then
// starts a new process if the fault killed the process. Returns the fault, or Nothing if the function has
// fewer steps.
func (d *Disk) During(step int, fault Fault, do func()) Fault {
	return d.with(plan{steps: step, fault: fault, panics: true}, do)
}

// Randomly is During with faults at random failpoints, if the function visits them, and returns the last
// fault. Failpoints with few faults get more.
func (d *Disk) Randomly(do func()) Fault {
	return d.with(plan{aims: d.aims(), panics: true}, do)
}

func (d *Disk) with(p plan, do func()) (struck Fault) {
	d.prepare(p)
	defer func() {
		struck = d.Struck()
		d.Restart()
		if gone := recover(); gone != nil && gone != any(errKilled) {
			panic(gone)
		}
	}()
	do()
	return Nothing
}

// Restart starts a new process, if a fault has killed the process, and forgets the plan of a fault.
func (d *Disk) Restart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		d.end()
	}
	d.dead, d.plan = false, plan{}
}

// end closes what the process has open.
func (d *Disk) end() {
	for _, opened := range d.open {
		_ = opened.Close()
	}
	d.open = nil
}

// Story returns faults and power failures, in order.
func (d *Disk) Story() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.story)
}

// errKilled is the error of each step of a process after its end, and the value of the panic in During.
var errKilled = errors.New("the process was killed")

// IsKilled reports whether an error is that of a killed process.
func IsKilled(err error) bool { return errors.Is(err, errKilled) }
