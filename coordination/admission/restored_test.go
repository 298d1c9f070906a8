// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/holders"
)

// emptyServer returns a committed state without devices.
func emptyServer() *committedState {
	c := &committedState{now: time.Now}
	c.state.Store(newState(nil))
	return c
}

// The lifetime of a plan ends for the next server too. A plan of the future was saved before a change of the
// clock.
func TestRestoredPlanHasALifetime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for left, valid := range map[time.Duration]bool{
		-1: false, 0: false, 1: true, planTTL: true, planTTL + 1: false,
	} {
		saved := savedPlan{Container: &savedContainer{}, Expires: now.Add(left)}
		if restored := saved.restore(now); (restored != nil) != valid {
			t.Errorf("with %v left: %v", left, restored)
		}
	}
}

// A server remembers a limited number of Allocates: a file with more is contradictory.
func TestTooManyAllocatesAreNotRestored(t *testing.T) {
	t.Parallel()
	for count, valid := range map[int]bool{maxAllocates: true, maxAllocates + 1: false} {
		c := emptyServer()
		err := c.restore(savedState{Allocates: make([]holders.Allocate, count)}, slog.New(slog.DiscardHandler))
		if (err == nil) != valid || (len(c.current().allocates) > 0) != valid {
			t.Errorf("%d Allocates: %v, %d restored", count, err, len(c.current().allocates))
		}
	}
}

// The next server knows the Allocates that the kubelet has not written down, and that the last container was
// refused: the next question is not of that container.
func TestRefusalOutlivesAServer(t *testing.T) {
	t.Parallel()
	before, after := emptyServer(), emptyServer()
	before.current().allocates = []holders.Allocate{{Resource: gpus, IDs: []string{"gpu"}}}
	saved := before.save()
	saved.Open = &savedContainer{Refused: true} // by an earlier version
	if err := after.restore(saved, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if s := after.current(); s.open != nil || len(s.allocates) != 1 {
		t.Errorf("open: %+v, Allocates %v", s.open, s.allocates)
	}
}

// A server decides nothing after the takeover by another server.
func TestClosedServerDecidesNothing(t *testing.T) {
	t.Parallel()
	c := emptyServer()
	before := c.current()
	c.closed = true
	tx, err := c.commit(func(*transaction) error { return nil })
	if !errors.Is(err, errClosed) || tx != nil || c.current() != before {
		t.Errorf("committed: %v", err)
	}
}
