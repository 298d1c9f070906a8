// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

const (
	// decidePause is the interval between two decisions about hints.
	decidePause = 5 * time.Second
	// decisionLasts is the time between two changes of a pool's hints: the kubelet gets a new list by each.
	decisionLasts = time.Minute
	// admissionLasts is the time in which the kubelet admits a container: from the use of a list of devices to
	// the record of the container's devices.
	admissionLasts = 30 * time.Second
)

// hinting decides about the NUMA hints of pools over time. Hints may be withdrawn at any time. They are given
// only while no container has a device of the pool: a kubelet that starts admits its containers again, with
// the hints of then, and would end a container whose devices the hints do not permit.
type hinting struct {
	began   time.Time
	decided map[string]pools.Decision
	waiting bool      // the hints of a pool wait for the end of containers
	sent    time.Time // last time at which lists were sent for the kubelet's checkpoint alone

	// The mutex of VFs guards the time of the last Allocate of each pool.
	allocated map[string]time.Time
}

// given is the last decision about the hints of a pool.
type given struct {
	Hints bool      `json:"hints"`
	Since time.Time `json:"since,omitzero"` // zero before the first change
	// Settled is set by the process that has given hints, when no container is in admission any more that began
	// before, and none has got a device of the pool.
	Settled bool `json:"settled,omitempty"`
}

// decideHints decides about the hints of pools as the kubelet knows them, with devices that are gone, and
// reports whether a decision has changed. The file has a decision before the kubelet has it: a restart must
// not take hints for given that were withdrawn.
func (v *VFs) decideHints(found []pools.Pool) bool {
	if v.known.Decide == nil {
		return false
	}
	listed := slices.Clone(found)
	for i := range listed {
		listed[i].Devices = v.addGone(listed[i])
	}
	wanted, gpusKnown := v.known.Decide(listed)
	next, decided, waiting := map[string]given{}, map[string]pools.Decision{}, false
	for _, pool := range found {
		if pool.Resource.ExcludeTopology != pools.Auto {
			continue
		}
		was := v.memory.Hints[pool.Name]
		want, ok := wanted[pool.Name]
		if !ok { // without a device
			next[pool.Name] = was
			continue
		}
		if !gpusKnown {
			want = pools.Decision{Hints: was.Hints, Why: "the GPUs are not known yet"}
		}
		u := v.readUse(pool.Name, was, want)
		next[pool.Name], decided[pool.Name] = was.nextDecision(want, u)
		waiting = waiting || u.held && !u.early
	}
	v.hints.waiting = waiting
	before := v.memory.Hints
	saved := v.saveHints(next)
	for name, d := range decided {
		switch was := before[name].Hints; {
		case d.Hints == was:
		case !saved:
			decided[name] = pools.Decision{Hints: was, Why: "another decision could not be saved"}
		case v.known.Changed != nil:
			v.known.Changed(name, d.String())
		}
	}
	changed := !maps.Equal(decided, v.hints.decided)
	v.hints.decided = decided
	return changed
}

// use is what prevents a change of a pool's hints.
type use struct {
	now   time.Time // no later than what was read: an Allocate meanwhile is one after the change
	early bool      // the last change was a short time ago
	raced bool      // a container can have been admitted with the list before the last change
	late  bool      // no container is in admission any more that began before
	held  bool      // containers that have devices of the pool prevent hints
	busy  string    // a container has a device of the pool, or may have one; "" if none has
}

// nextDecision returns the decision after a wish.
func (g given) nextDecision(want pools.Decision, u use) (given, pools.Decision) {
	keep := func(why string) (given, pools.Decision) { return g, pools.Decision{Hints: g.Hints, Why: why} }
	g.Settled = g.Settled || g.Hints && u.late && !u.raced
	switch {
	case g.Hints && u.raced:
		return given{Since: u.now},
			pools.Decision{Why: "a container may have been admitted while the hints were given"}
	case want.Hints == g.Hints:
		return g, want
	case u.early:
		return keep("the last change is less than a minute ago")
	case want.Hints && u.busy != "":
		return keep(u.busy)
	default:
		return given{Hints: want.Hints, Since: u.now}, want
	}
}

// readUse reads what prevents a change.
func (v *VFs) readUse(pool string, last given, want pools.Decision) (u use) {
	u.now = time.Now()
	v.mu.Lock()
	allocated, known := v.hints.allocated[pool]
	v.mu.Unlock()
	if !known { // an earlier process may have answered
		allocated = v.hints.began
	}
	age, after := u.now.Sub(last.Since), allocated.Sub(last.Since)
	u.early, u.late = age >= 0 && age < decisionLasts, age >= admissionLasts
	u.raced = !last.Settled && after >= 0 && (after < admissionLasts || !known)
	if last.Hints || !want.Hints {
		return u
	}
	var held map[string][]string
	var err error
	if v.known.Held != nil {
		held, err = v.known.Held()
	}
	switch {
	case err != nil:
		u.busy = "the devices of containers are unknown"
	case len(held[pool]) > 0:
		u.held, u.busy = true, "containers have devices of the pool: hints come when none has"
	case u.now.Sub(allocated) < admissionLasts:
		u.busy = "a container may be in admission"
	}
	return u
}

// saveHints saves the decisions, and reports whether the file has them.
func (v *VFs) saveHints(next map[string]given) bool {
	before := v.memory.Hints
	if maps.Equal(next, before) {
		return true
	}
	v.setHints(next)
	if !v.saveMemory() {
		v.setHints(before)
		return false
	}
	return true
}

func (v *VFs) setHints(to map[string]given) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.memory.Hints = to
}

// noteAllocate notes an Allocate of a pool. If hints have been given a short time ago, the kubelet may have
// chosen the NUMA nodes of the container without them: the first Allocate since counts.
func (v *VFs) noteAllocate(pool string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if last := v.memory.Hints[pool]; last.Hints && !last.Settled {
		v.Look()
		if !v.hints.allocated[pool].Before(last.Since) {
			return
		}
	}
	v.hints.allocated[pool] = time.Now()
}

// decideAgain decides about the pools of the last scan. The kubelet does not write its checkpoint when a pod
// ends, but for each list: while hints wait for the end of containers, each minute has a list.
func (v *VFs) decideAgain() {
	if v.decideHints(v.found) {
		v.takePools(v.found, v.warnings)
		v.saveMemory()
	}
	if v.hints.waiting && time.Since(v.hints.sent) >= decisionLasts {
		v.hints.sent = time.Now()
		v.mu.Lock()
		v.changed.Raise()
		v.mu.Unlock()
	}
}
