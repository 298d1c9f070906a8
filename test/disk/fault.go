// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Fault is an event at a step.
type Fault int

// Faults. A process that was killed makes no further step.
const (
	Nothing   Fault = iota
	Fails           // the step fails and changes nothing, except that a close closes
	Full            // the step fails for lack of space; a write has written a part
	Dies            // the process is killed before the step, in a write after a part
	DiesAfter       // the process is killed after the step
	Slow            // the step takes Disk.Delay
)

// Faults are all faults with an effect on files.
var Faults = []Fault{Fails, Full, Dies, DiesAfter}

// Kills reports whether a fault ends the process.
func (f Fault) Kills() bool { return f == Dies || f == DiesAfter }

// String returns the fault for people.
func (f Fault) String() string {
	return []string{"nothing", "fails", "no space", "killed before", "killed after", "slow"}[f]
}

// step is a step in a folder.
type step struct {
	dir, name string
	whole     func() error
	part      func(share float64) // of a write
	cleanUp   bool                // has its effect even if the step fails, as a close
}

// do makes a step, with the fault if planned for the step.
func (d *Disk) do(s step) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return d.gone()
	}
	point := cmp.Or(d.kinds[s.dir], filepath.Base(s.dir)) + ": " + s.name
	count := d.counts.of(point)
	count.Visits++
	fault := d.next(point)
	if fault == Nothing {
		return s.whole()
	}
	count.Faults++
	d.plan.struck = fault
	d.story = append(d.story, point+": "+fault.String())
	if s.part != nil && (fault == Full || fault == Dies) {
		s.part(d.random.Float64())
	}
	if s.cleanUp && !fault.Kills() || fault == DiesAfter {
		_ = s.whole()
	}
	switch fault {
	case Fails:
		return fmt.Errorf("%s: %w", point, syscall.EIO)
	case Full:
		return fmt.Errorf("%s: %w", point, syscall.ENOSPC)
	case Slow:
		d.sleep()
		return s.whole()
	default:
		d.dead = true
		return d.gone()
	}
}

// next returns the fault of the next step.
func (d *Disk) next(point string) Fault {
	d.plan.steps--
	if d.plan.steps == 0 {
		return d.plan.fault
	}
	fault := d.plan.aims[point]
	delete(d.plan.aims, point)
	return fault
}

// aims returns faults at a few failpoints, and for the removal of a temporary file a fault that causes the
// removal. One time in eight it returns none: who tries until there is no fault gets through, even while the
// disk knows a single failpoint.
func (d *Disk) aims() map[string]Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	points, aims := slices.Sorted(maps.Keys(d.counts)), map[string]Fault{}
	if d.random.IntN(8) == 0 {
		return aims
	}
	for range min(len(points), 1+d.random.IntN(2)) {
		d.random.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
		point := slices.MinFunc(points[:min(len(points), 4)], func(a, b string) int {
			return cmp.Compare(d.counts[a].Faults, d.counts[b].Faults)
		})
		aims[point] = Faults[d.random.IntN(len(Faults))]
		if kind, ok := strings.CutSuffix(point, ": remove"); ok {
			causes := []string{"write", "chmod", "close", "rename"}
			aims[kind+": "+causes[d.random.IntN(len(causes))]] = Fails
		}
	}
	return aims
}

func (d *Disk) sleep() {
	d.mu.Unlock()
	defer d.mu.Lock()
	<-time.After(d.Delay)
}

func (d *Disk) gone() error {
	if d.plan.panics {
		panic(any(errKilled))
	}
	return errKilled
}
