// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
)

// state is all memory between two decisions. A committed state is immutable: a decision changes a copy, and
// the commit makes the copy the next state.
type state struct {
	version   int // incremented by every Allocate but a refused double; each observation belongs to a version
	ids       int // highest ID of a container in admission
	tree      *topology.Tree
	resources device.Resources

	allocates []holders.Allocate       // not yet in the kubelet's records
	known     map[string]holders.Known // pods of the kubelet's checkpoint, by UID
	listing   listing                  // the last PodResources List
	found     holders.Holders          // by the last question, with later Allocates
	unlisted  holders.Holders          // by the last question: see holders.Result
	books     func() *books            // of tree, resources and found

	open *openAdmission // nil for none
}

// newState returns a state with a PCI tree and no devices.
func newState(tree *topology.Tree) *state {
	s := &state{tree: tree}
	s.hold(nil)
	return s
}

// clone returns a copy for a decision.
func (s *state) clone() *state {
	next := *s
	next.open = s.open.clone()
	next.allocates, next.found = slices.Clip(s.allocates), slices.Clip(s.found)
	return &next
}

// hold replaces the known holders.
func (s *state) hold(found holders.Holders) {
	tree, set := s.tree, s.resources
	s.found, s.books = found, sync.OnceValue(func() *books { return newBooks(tree, set, found) })
}

// nextID returns the ID for a new container in admission.
func (s *state) nextID() int {
	s.ids++
	return s.ids
}

// release removes the devices of a container that the kubelet rejects.
func (s *state) release(c *recipient) {
	if c == nil {
		return
	}
	isOf := func(a holders.Allocate) bool { return device.SameSet(a.IDs, c.Devices[a.Resource]) }
	var life string
	if i := slices.IndexFunc(s.allocates, isOf); i >= 0 {
		life = s.allocates[i].Life
	}
	s.allocates = slices.DeleteFunc(slices.Clone(s.allocates), isOf)
	s.hold(slices.DeleteFunc(slices.Clone(s.found), func(h holders.Holder) bool {
		return mayBeInAdmission(h, life) && c.Devices.HasAny(h.Devices)
	}))
}

// mayBeInAdmission reports whether the kubelet of a life may have a container in admission. A container whose
// Allocates an earlier kubelet has sent runs, or its pod is admitted again, with Allocates of its own.
func mayBeInAdmission(h holders.Holder, life string) bool {
	return h.Open && (h.Life == "" || life == "" || h.Life == life)
}

// Limits of remembered Allocates, and of holders between two questions. With a readable checkpoint there is
// one Allocate for each resource.
const (
	maxAllocates = 256
	maxHolders   = 4096
)

// recordAllocate adds an Allocate of a container until the kubelet's records contain the Allocate. The
// kubelet writes its checkpoint when a container has all its devices, and allocates each resource of a
// container once. An Allocate before another checkpoint, or of the same resource, is therefore over.
// Allocates of a different container are over too: if the kubelet continues without a new checkpoint, the
// kubelet has rejected the earlier container.
func (s *state) recordAllocate(c *recipient, a holders.Allocate) {
	if asker := c.Asker; asker != nil && asker.Exact {
		a.UID, a.Pod, a.Name = asker.UID, asker.Pod, asker.Name
	}
	over := func(earlier holders.Allocate) bool {
		return a.Recorded != kubelet.Identity{} && (earlier.Recorded != a.Recorded ||
			earlier.Resource == a.Resource || !device.SameSet(earlier.IDs, c.Devices[earlier.Resource]))
	}
	all := append(slices.DeleteFunc(slices.Clone(s.allocates), over), a)
	s.allocates = all[max(0, len(all)-maxAllocates):]
	h := holders.Holder{UID: a.UID, Pod: a.Pod, Name: a.Name, Devices: c.Devices, Open: true, Life: a.Life}
	if name := c.Likely(); name != nil {
		h.Pod, h.Name = name.Pod, name.Name
	} else if c.Identified() {
		h.Pod = c.Pods[0]
	}
	before := s.open.allocated()
	found := slices.DeleteFunc(slices.Clone(s.found), func(h holders.Holder) bool {
		return mayBeInAdmission(h, a.Life) && before != nil && before.ID == c.ID && before.Devices.HasAll(h.Devices)
	})
	found = append(found, h)
	s.hold(found[max(0, len(found)-maxHolders):])
}

// checkAnnounced returns an error for a question about devices not announced.
func checkAnnounced(set device.Resources, q *api.PreferRequest) error {
	r := set[q.GetResource()]
	switch {
	case r == nil:
		return fmt.Errorf("choose %s: no plugin has announced the resource", q.GetResource())
	case len(q.GetAvailable()) > len(r.Devices) || len(q.GetMustInclude()) > len(r.Devices):
		return fmt.Errorf("choose among %d devices of %s: only %d were announced",
			len(q.GetAvailable()), q.GetResource(), len(r.Devices))
	}
	return nil
}

// committedState is the state of the last commit, with the history of commits.
type committedState struct {
	now   func() time.Time
	began time.Time
	state atomic.Pointer[state]

	mu        sync.Mutex // held during a decision, never during I/O
	history   decisionLog
	announced system.Signal // raised by an announcement, and when a plugin leaves
	closed    bool          // a different server decides now

	computing sync.Mutex // of options, held without mu
}

// ErrClosed reports the end of a server.
var ErrClosed = errors.New("this server has stopped; the other plugin takes over")

// current returns the last committed state.
func (c *committedState) current() *state { return c.state.Load() }

// commit decides and commits the decision. After an error, nothing has changed. Decisions run one after
// another, and read nothing except their input and the clock.
func (c *committedState) commit(decide func(*transaction) error) (*transaction, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	tx := &transaction{state: c.current().clone(), now: c.now}
	if err := decide(tx); err != nil {
		return nil, err
	}
	c.state.Store(tx.state)
	tx.addToHistory(&c.history)
	return tx, nil
}

// locked runs a quick function with the mutex held.
func (c *committedState) locked(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

// awaitUnlocked waits until no decision is in progress, or returns an error when ctx is done.
func (c *committedState) awaitUnlocked(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !c.mu.TryLock() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the coordinator hangs: %w", context.Cause(ctx))
		}
	}
	c.mu.Unlock()
	return nil
}

// checkAnnounced returns the channel for the next announcement if a question has to wait: the devices of the
// question are not announced, which is an error, or plugins are joining. Returns nil otherwise.
func (c *committedState) checkAnnounced(q *api.PreferRequest) (announced <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.current()
	if err = checkAnnounced(s.resources, q); err == nil && !c.isJoining(s) {
		return nil, nil
	}
	return c.announced.Next(), err
}

// joinTime is the time after a takeover in which questions wait for the plugins of the earlier server. A
// plugin that does not come in time delays no question later.
const joinTime = time.Second

// isJoining reports whether a plugin of the earlier server may still announce its resources. Until then
// nothing is known of its open Allocates.
func (c *committedState) isJoining(s *state) bool {
	return c.now().Sub(c.began) < joinTime && s.resources.Restored()
}

// transaction is a decision in progress: a copy of the state, and a report. Both take effect at the commit.
type transaction struct {
	*state
	report
	now func() time.Time
}

// livePlan returns the plan, nil if expired.
func (tx *transaction) livePlan() *plan { return tx.open.live(tx.now()) }

// openFor makes the container of a question the open one, with its plan, and reports the outcome of the
// plan before.
func (tx *transaction) openFor(c *recipient, next *plan, recorded kubelet.Identity) {
	tx.expirePromise()
	if before := tx.open; before != nil && before.Plan != nil && before.Container.ID == c.ID &&
		before.Plan.promised[next.Resource] != nil {
		next.promised, next.until = before.Plan.promised, before.Plan.until // the rest of the same container
	} else {
		tx.endPlan()
		next.promised, next.until = next.otherDevices(next.Resource), next.Expires
		if n := len(next.promised); n > 0 {
			tx.observe(Planned(n))
		}
	}
	tx.open = tx.open.of(c)
	tx.open.Plan, tx.open.Recorded, tx.open.at = next, recorded, tx.now()
}

// endRejected closes the open admission if the kubelet has rejected the container's pod, by its fate or by
// the evidence, and frees the devices; or if the pod may have been rejected, or nothing relates the container
// to a call. The evidence then has no newest container.
func (tx *transaction) endRejected(e *evidence, of fate) {
	if tx.open == nil || tx.open.allocated() != nil && e.Progress == progressComplete {
		return
	}
	c := tx.open.Container
	if e.Newest != nil {
		c = e.Newest
	}
	switch {
	case of == allGone || e.IsGone(c):
		tx.release(tx.open.Container)
	case of == noneGone && !e.IsUnrelated(c):
		return
	}
	tx.endAdmission()
	e.Progress, e.Newest = progressComplete, nil
}

// endAdmission closes the open admission: no call for its container follows. The container keeps its devices
// until the kubelet's records show their end, or until release.
func (tx *transaction) endAdmission() {
	tx.endPlan()
	tx.open = nil
}

// fulfilPromise reports the outcome of the promise for an allocated resource.
func (tx *transaction) fulfilPromise(resource string, ids []string) {
	tx.expirePromise()
	p := tx.plan()
	if p == nil || p.promised[resource] == nil {
		return
	}
	outcome := Overruled
	if device.SameSet(p.promised[resource], ids) {
		outcome = Kept
	}
	delete(p.promised, resource)
	tx.observe(outcome)
}

// plan returns the plan, expired or not; nil for none.
func (tx *transaction) plan() *plan {
	if tx.open == nil {
		return nil
	}
	return tx.open.Plan
}

// expirePromise reports an expired promise.
func (tx *transaction) expirePromise() {
	if p := tx.plan(); p != nil && !tx.now().Before(p.until) {
		tx.endPromise(Expired)
	}
}

// endPlan removes the plan.
func (tx *transaction) endPlan() {
	tx.endPromise(Dropped)
	if tx.open != nil {
		tx.open.Plan = nil
	}
}

// endPromise reports the outcome of all remaining promises.
func (tx *transaction) endPromise(outcome PlanOutcome) {
	p := tx.plan()
	if p == nil {
		return
	}
	for range p.promised {
		tx.observe(outcome)
	}
	p.promised = nil
}
