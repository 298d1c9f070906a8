// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
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

// The version before sets a file with more Allocates aside: the holders of many containers are not all saved,
// those whose records the kubelet has lost first.
func TestSavedHoldersAreLimited(t *testing.T) {
	t.Parallel()
	c := emptyServer()
	var found holders.Holders
	for i := range maxAllocates + 2 {
		id := fmt.Sprint(i)
		found = append(found, holders.Holder{
			UID: id, Name: "c", Devices: kubelet.Devices{gpus: {id}}, Lost: i > maxAllocates,
		})
	}
	c.current().hold(found)
	next := emptyServer()
	if err := next.restore(c.save(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	restored := next.current().found
	if len(restored) != maxAllocates || !restored[0].Lost || restored[0].UID != found[maxAllocates+1].UID {
		t.Errorf("%d holders, the first %+v", len(restored), restored[0])
	}
}

// A version before has a text of a pod, mostly "", that this version does not use.
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
	if !errors.Is(err, ErrClosed) || tx != nil || c.current() != before {
		t.Errorf("committed: %v", err)
	}
}
