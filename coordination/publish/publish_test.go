// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/publish/facts"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/test/published"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWatch: the files of facts and the kubelet's start are watched; other files are not.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	if err := published.WriteCheckpoint(dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, done := make(chan publish.Change), make(chan struct{})
	go func() {
		defer close(done)
		publish.Watch(dir, slog.New(slog.DiscardHandler))(ctx, events)
	}()
	defer func() { cancel(); <-done }()
	for _, c := range []struct {
		want  publish.Change
		write func() error
	}{
		{publish.Written, func() error { return published.WriteCheckpoint(dir) }},
		{publish.Started, func() error {
			socket := filepath.Join(dir, "device-plugins", "kubelet.sock")
			_ = os.Remove(socket) // of the attempt before
			return os.WriteFile(socket, nil, 0o600)
		}},
		{publish.Written, func() error {
			return os.WriteFile(filepath.Join(dir, kubelet.CPUStateFile), []byte("{}"), 0o600)
		}},
	} {
		await(t, events, c.want, c.write)
	}
}

// await repeats a write until there is an event, because the watch begins after the start.
func await(t *testing.T, events <-chan publish.Change, want publish.Change, write func() error) {
	t.Helper()
	limit, again := time.After(20*time.Second), time.NewTicker(100*time.Millisecond)
	defer again.Stop()
	for {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-events:
			if got == want {
				return
			}
		case <-again.C:
		case <-limit:
			t.Fatalf("no event %d", want)
		}
	}
}

// TestFile: a changed file is written, and a missing folder is an error.
func TestFile(t *testing.T) {
	dir, text := t.TempDir(), "a=1\n"
	render := func(facts.Facts, time.Time) []byte { return []byte(text) }
	sink := publish.NewFile(system.Disk{}, "nfd-file", filepath.Join(dir, "tandem"), render)
	for _, want := range []bool{true, false} {
		if written, err := sink.Write(t.Context(), facts.Facts{}); written != want || err != nil {
			t.Errorf("written %v, %v", written, err)
		}
	}
	text = "a=2\n"
	if written, err := sink.Write(t.Context(), facts.Facts{}); !written || err != nil {
		t.Errorf("written %v, %v", written, err)
	}
	if content, err := os.ReadFile(filepath.Join(dir, "tandem")); string(content) != text {
		t.Errorf("%q, %v", content, err)
	}
	gone := publish.NewFile(system.Disk{}, "nfd-file", filepath.Join(dir, "none", "tandem"), render)
	if _, err := gone.Write(t.Context(), facts.Facts{}); err == nil {
		t.Error("a folder that is not there is no error")
	}
}

// TestFileHolds: while the daemon runs the file is valid for at least 20 more minutes, and at most 30 minutes
// after the daemon's end. It is written once in ten minutes.
func TestFileHolds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "tandem")
		sink := publish.NewFile(system.Disk{}, "nfd-file", path, func(_ facts.Facts, until time.Time) []byte {
			return []byte(until.Format(time.RFC3339))
		})
		writes := 0
		const rounds = 240
		for range rounds { // two hours
			written, err := sink.Write(t.Context(), facts.Facts{})
			if err != nil {
				t.Fatal(err)
			}
			if written {
				writes++
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			until, err := time.Parse(time.RFC3339, string(content))
			if left := time.Until(until); err != nil || left < 20*time.Minute || left > 30*time.Minute {
				t.Fatalf("the file holds for %s: %v", left, err)
			}
			<-time.After(30 * time.Second)
		}
		if writes < 12 || writes > 13 {
			t.Errorf("%d writes in two hours", writes)
		}
	})
}

func TestTargets(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "tandem": "tandem", "nrt, tandem,nrt": "nrt,tandem", "kubenexus,nfd-file": "kubenexus,nfd-file",
	} {
		var targets publish.Targets
		if err := targets.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got, _ := targets.MarshalText(); string(got) != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"all", "tandem,", "kubenexus", "kubenexus,tandem"} {
		if err := new(publish.Targets).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is no error", text)
		}
	}
}
