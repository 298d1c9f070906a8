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
		open := openAdmission{Container: &recipient{}, Plan: &plan{Expires: now.Add(left)}}
		if restored := (&savedAdmission{open, nil}).restore(now); (restored != nil) != valid {
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

// A server remembers a limited number of holders between two questions.
func TestSavedHoldersAreLimited(t *testing.T) {
	t.Parallel()
	c, next := emptyServer(), emptyServer()
	c.current().hold(make(holders.Holders, maxHolders+2))
	saved := c.save()
	err := next.restore(saved, slog.New(slog.DiscardHandler))
	if n := len(next.current().found); err != nil || n != maxHolders {
		t.Errorf("%v, %d holders", err, n)
	}
	saved.Found = append(saved.Found, holders.Holder{})
	if err := emptyServer().restore(saved, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a file with too many holders is not contradictory")
	}
}

// A version before has texts that this version does not use.
func TestKnownPodsOfAVersionBefore(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "8a2ff4e1-3d5c-4f64-9d1e-6f2d8a1c0b7e", "2026-11-28T08:00:00Z"} {
		content, err := encodeState("boot", map[string]any{"known": map[string]any{
			"u1": map[string]any{"Told": true, "After": text},
		}})
		if err != nil {
			t.Fatal(err)
		}
		saved, _, err := decodeState[savedState](content)
		if err != nil || !saved.Known["u1"].Told {
			t.Errorf("After %q: %+v, %v", text, saved.Known, err)
		}
	}
}

// A server decides nothing after the takeover by another server.
func TestClosedServerDecidesNothing(t *testing.T) {
	t.Parallel()
	c := emptyServer()
	before := c.current()
	c.closed = true
	tx, err := c.commit(func(*transaction) error { return nil })
	if !errors.Is(err, ErrClosed) || tx != nil || c.current() != before {
		t.Errorf("committed: %v", err)
	}
}
