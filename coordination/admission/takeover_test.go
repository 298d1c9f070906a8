// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/pairs"
)

// After a takeover between the Allocates of VFs and GPUs the pairs file has both, as without a takeover. The
// container keeps the file with which it starts.
func TestPairsFileOverATakeover(t *testing.T) {
	t.Parallel()
	a, dir := newPaired(t)
	c := a.coordinator
	gpu, vf := a.all[gpus][0], a.all[vfs][0]
	a.giveVF("c", vf)
	file := filepath.Join(dir, "file.json")
	named := []pairs.VF{{ID: vf.ID, Address: vf.Address, Resource: vfs, RDMA: "mlx5_9"}}
	if _, written, _ := c.Pair(vfs, []string{vf.ID}, file, named); !written {
		t.Fatal("the file is not written")
	}
	a.coordinator = a.successor(c.now)
	a.coordinator.pairs = c.pairs
	a.announce()
	a.now = a.now.Add(time.Second)
	a.prefer(gpus, []string{gpu.ID}, nil, 1)
	a.allocated(gpus, []string{gpu.ID})
	got, err := pairs.Read(file)
	if err != nil || len(got.Pairs) != 1 || got.Pairs[0].GPU == nil || got.Pairs[0].GPU.ID != gpu.ID ||
		got.Pairs[0].VF != named[0] {
		t.Errorf("%+v, %v", got, err)
	}
}

// A client of the socket, a plugin of an earlier version included, has no file written elsewhere.
func TestPairsFileOutsideTheFolder(t *testing.T) {
	t.Parallel()
	a, folder := newPaired(t)
	c := a.coordinator
	dir := filepath.Dir(folder)
	vf := a.all[vfs][0]
	a.giveVF("c", vf)
	for _, file := range []string{
		filepath.Join(dir, "elsewhere.json"), folder + "/../elsewhere.json", "pairs.json",
		folder + "/", folder + "/.", folder + "/..",
	} {
		served, written, _ := c.Pair(vfs, []string{vf.ID}, file, nil)
		if info, err := os.Lstat(file); written || err == nil && !info.IsDir() || len(served) == 0 {
			t.Errorf("%s: written %t, %v", file, written, err)
		}
	}
}

// After a takeover the kubelet can ask for one half before the plugin of the other half has announced its
// devices: the question waits, for a short time only, and reads no List before the plugin has told which of
// its Allocates are open.
func TestQuestionRightAfterATakeover(t *testing.T) {
	for name, joins := range map[string]bool{"the other plugin joins": true, "the other plugin is gone": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
				next, looks := a.successor(time.Now), a.countReads()
				announce := func(resource string, kind device.Kind) {
					if err := next.Announce(resource, kind, device.Announcement{Devices: a.all[resource]}); err != nil {
						t.Error(err)
					}
				}
				announce(vfs, device.VF)
				if joins {
					time.AfterFunc(time.Millisecond, func() { announce(gpus, device.GPU) })
				}
				began := time.Now()
				_, why, err := next.Prefer(t.Context(), &api.PreferRequest{
					Resource: vfs, Available: ids(a.all[vfs]), Size: 2,
				})
				history := next.history.all()
				pairs := history[len(history)-1].GetPairs()
				switch waited := time.Since(began); {
				case err != nil:
					t.Error(err)
				case joins && (waited != time.Millisecond || len(pairs) != 2):
					t.Errorf("answered after %s with the pairs %v: %s", waited, pairs, why)
				case !joins && (waited == 0 || waited > 100*time.Millisecond):
					t.Errorf("answered after %s", waited)
				case joins != (looks.Load() > 0):
					t.Errorf("%d Lists", looks.Load())
				}
				if !joins {
					<-time.After(joinTime)
					began := time.Now()
					if _, _, err := next.Prefer(t.Context(), &api.PreferRequest{
						Resource: vfs, Available: ids(a.all[vfs]), Size: 2,
					}); err != nil || time.Since(began) > 0 || looks.Load() == 0 {
						t.Errorf("a question later is answered after %s, %d Lists: %v", time.Since(began), looks.Load(), err)
					}
				}
			})
		})
	}
}

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

// TestDecisionsOnTheWayBack: the version before, test/before, rejects all saved decisions if one message has
// a field that it does not know: its Owner has no UID. It reads the container and the UID beside the message.
func TestDecisionsOnTheWayBack(t *testing.T) {
	t.Parallel()
	a := told(t)
	a.start("owner", gpus)
	var saved struct {
		Decisions []struct {
			Decision struct{ Container map[string]string }
		}
	}
	if err := json.Unmarshal(encoded(t, a.coordinator), &saved); err != nil || len(saved.Decisions) != 1 {
		t.Fatal(saved, err)
	}
	known := map[string]bool{"namespace": true, "pod": true, "container": true}
	for key := range saved.Decisions[0].Decision.Container {
		if !known[key] {
			t.Errorf("container.%s: the version before loses its history of decisions", key)
		}
	}
}

// TestExplainAfterATakeoverInAQuestion: an Allocate whose question the server before has answered is a
// decision of its own, and changes none of another container.
func TestExplainAfterATakeoverInAQuestion(t *testing.T) {
	t.Parallel()
	a := told(t)
	owner, held := a.start("owner", gpus)
	second := a.pending("second", wish{1, 0}).Pod
	ids, _ := a.ask(gpus, 0, 1)
	a.takeOver() // after the last save of a server that stops
	a.take(second, gpus, ids)
	a.keep(second)
	for pod, devices := range map[string][]string{owner.Name: held, "second": ids} {
		decisions, err := a.coordinator.Explain(t.Context(), "team", pod, "")
		if err != nil || len(decisions) != 1 || decisions[0].GetAllocated()[0] != devices[0] {
			t.Errorf("%s with %v: %v, %v", pod, devices, decisions, err)
		}
	}
}
