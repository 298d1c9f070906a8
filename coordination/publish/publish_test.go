// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
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

func TestTargets(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "tandem": "tandem", "nrt, tandem,nrt": "nrt,tandem", "kubenexus,nfd": "kubenexus,nfd",
	} {
		var targets publish.Targets
		if err := targets.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got, _ := targets.MarshalText(); string(got) != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"all", "tandem,", "kubenexus", "kubenexus,tandem", "nfd-file"} {
		if err := new(publish.Targets).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is no error", text)
		}
	}
}
