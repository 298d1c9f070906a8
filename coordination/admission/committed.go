// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/history"
)

// committedState is the state of the last commit, with the history of commits.
type committedState struct {
	now   func() time.Time
	began time.Time
	state atomic.Pointer[state]

	mu        sync.Mutex // held during a decision, never during I/O
	history   history.Log
	announced chan struct{} // closed at the next announcement; nil without waiters
	closed    bool          // a different server decides now
}

// errClosed reports the end of a server.
var errClosed = errors.New("this server has stopped; the other plugin takes over")

// current returns the last committed state.
func (c *committedState) current() *state { return c.state.Load() }

// commit decides and commits the decision. After an error, nothing has changed. Decisions run one after
// another, and read nothing except their input and the clock.
func (c *committedState) commit(decide func(*transaction) error) (*transaction, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	tx := &transaction{state: c.current().clone(), now: c.now}
	if err := decide(tx); err != nil {
		return nil, err
	}
	c.state.Store(tx.state)
	tx.remember(&c.history)
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

// nextAnnouncement returns a channel that is closed at the next announcement, and when a plugin leaves. Must
// be called with the mutex held.
func (c *committedState) nextAnnouncement() <-chan struct{} {
	if c.announced == nil {
		c.announced = make(chan struct{})
	}
	return c.announced
}

// signalAnnouncement wakes the waiters for an announcement.
func (c *committedState) signalAnnouncement() {
	c.locked(func() {
		if c.announced != nil {
			close(c.announced)
			c.announced = nil
		}
	})
}

// checkAnnounced returns the channel for the next announcement if a question has to wait: the devices of the
// question are not announced, which is an error, or plugins are joining. Returns nil otherwise.
func (c *committedState) checkAnnounced(q asking.Question) (announced <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = c.current().checkAnnounced(q); err == nil && !c.isJoining() {
		return nil, nil
	}
	return c.nextAnnouncement(), err
}

// joinTime is the time after a takeover in which questions wait for the plugins of the earlier server. A
// plugin that does not come in time delays no question later.
const joinTime = time.Second

// isJoining reports whether a plugin of the earlier server is expected to announce its devices soon.
func (c *committedState) isJoining() bool {
	return c.now().Sub(c.began) < joinTime && c.current().resources.Restored()
}
