// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// failures counts failed sessions.
type failures struct {
	unobserved
	n atomic.Int64
}

func (f *failures) Unregistered(string, error) { f.n.Add(1) }

// After a failed session the server waits as long as the kubelet is the same, and no longer if it is another.
func TestWaitAfterAFailedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := unwatched(t)
		kubelet := func() {
			t.Helper()
			next := f.path("next")
			if err := os.WriteFile(next, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(next, f.path(kubeletSocket)); err != nil {
				t.Fatal(err)
			}
		}
		kubelet()
		seen := &failures{}
		log := slog.New(slog.DiscardHandler)
		s, err := New(Options{KubeletDir: t.TempDir(), Observer: seen, Log: log}, &watched{})
		if err != nil {
			t.Fatal(err)
		}
		s.dir = filepath.Join(t.TempDir(), "absent") // each session fails at once
		s.devices.publish([]Device{{ID: "a", Healthy: true}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- f.run(ctx) }()
		go func() { ended <- s.stayRegistered(ctx, f) }()
		<-time.After(2 * time.Minute)
		synctest.Wait()
		if n := seen.n.Load(); n < 8 || n > 13 {
			t.Errorf("%d sessions in two minutes", n)
		}
		if err := os.Remove(f.path(kubeletSocket)); err != nil {
			t.Fatal(err)
		}
		<-time.After(3 * pollPause)
		before := seen.n.Load()
		<-time.After(2 * time.Minute)
		if n := seen.n.Load() - before; n > 1 {
			t.Errorf("%d sessions without a kubelet", n)
		}
		for range 3 {
			before = seen.n.Load()
			kubelet()
			<-time.After(pollPause + time.Millisecond)
			synctest.Wait()
			if seen.n.Load() == before {
				t.Error("a new kubelet is not noticed")
			}
			<-time.After(15 * time.Second)
		}
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestBackoff(t *testing.T) {
	var b backoff
	wait := func(lasted time.Duration, want time.Duration) {
		t.Helper()
		if got := b.next(lasted); got < want || got > want*5/4 {
			t.Errorf("wait %s after %s, want %s", got, lasted, want)
		}
	}
	for _, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000} {
		// What two instances that take turns see of each other: no session is stable.
		wait(longestPause, want*time.Millisecond)
	}
	wait(stableAfter, firstPause)
	wait(0, 2*firstPause)
}
