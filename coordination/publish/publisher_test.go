// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/checkpoint"
	"github.com/tandem-k8s/tandem/topology"
)

// told is the knowledge of a plugin. A read of its announcements panics if there are none.
type told struct{ announced *admission.Announced }

func (k told) Announced() (admission.Announced, <-chan struct{}) { return *k.announced, nil }

func (told) Policy() intent.Policy { return intent.Policy{} }

func (told) Enforcement() (intent.Enforcement, <-chan struct{}) { return intent.Enforcement{}, nil }

// target is a target of a publisher.
type target struct {
	write  func(Facts) (bool, error) // nil for a target that nothing can be written to
	forget func()                    // its content is to be read again; may be nil
}

func (target) Name() string { return "tandem" }

func (s target) Write(_ context.Context, f Facts) (bool, error) {
	if s.write == nil {
		return false, errors.New("unused")
	}
	return s.write(f)
}

func (s target) Forget() {
	if s.forget != nil {
		s.forget()
	}
}

// newOf returns a publisher of a node whose files never change, without a log.
func newOf(t *testing.T, config Config) *Publisher {
	t.Helper()
	config.Log = slog.New(slog.DiscardHandler)
	config.Watch = func(ctx context.Context, _ chan<- Change) { <-ctx.Done() }
	if config.Published == nil {
		config.Published = func(string, error) {}
	}
	p, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A target with unknown content waits for other facts, says so, and is written at once with them.
func TestUnreadFactsAreAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		attempts := 0
		p := newOf(t, Config{Published: func(string, error) { attempts++ }})
		known := target{write: func(f Facts) (bool, error) { return f.Unread == nil, f.Unread }}
		k := keeper{Publisher: p, sink: known, newest: &system.Newest[*Facts]{}}
		go k.keepWritten(ctx)
		k.newest.Set(&Facts{Unread: ErrUnread})
		<-time.After(time.Hour)
		all := k.notes.allNotes()
		if attempts != 1 || len(all) != 1 || !strings.Contains(all[0], ErrUnread.Error()) {
			t.Errorf("%d attempts, notes %q", attempts, all)
		}
		k.newest.Set(&Facts{})
		synctest.Wait()
		if all := k.notes.allNotes(); attempts != 2 || len(all) > 0 {
			t.Errorf("%d attempts, notes %q", attempts, all)
		}
	})
}

// A panic ends Publish with all its work, so that the caller can call Publish again; until then a note says
// that the publication is not up to date.
func TestPublishEndsAfterPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := newOf(t, Config{Sinks: []Sink{target{}}})
		ended := make(chan error, 1)
		go func() {
			ended <- system.Survive(p.config.Log, func() error { return p.Publish(ctx, told{}) })
		}()
		select {
		case err := <-ended:
			if !system.Panicked(err) {
				t.Errorf("ended: %v", err)
			}
			if notes := p.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "not up to date") {
				t.Errorf("notes %q", notes)
			}
		case <-time.After(time.Hour):
			t.Error("an hour after the panic Publish has not returned")
		}
		cancel()
		synctest.Wait()
	})
}

// Before the first announcement the devices are unknown, and the published content stays.
func TestUnknownIsNotPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*look)
		defer cancel()
		times := 0
		p := newOf(t, Config{
			Sinks:     []Sink{target{forget: func() { times++ }}},
			Published: func(string, error) { t.Error("written") },
		})
		if err := p.Publish(ctx, told{&admission.Announced{}}); err != nil {
			t.Error(err)
		}
		if times != 1 {
			t.Errorf("what another plugin may have published is read again %d times, want once", times)
		}
	})
}

// A container that the kubelet has lost its records of holds its devices in what is published.
func TestLostContainerIsPublished(t *testing.T) {
	dir := t.TempDir()
	if err := checkpoint.Write(dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*look)
		defer cancel()
		var got []v1alpha1.Held
		p := newOf(t, Config{Sys: fstest.MapFS{}, KubeletDir: dir, Sinks: []Sink{
			target{write: func(f Facts) (bool, error) {
				got = f.Spec.Held
				return true, nil
			}},
		}})
		gpus := device.NewResource("amd.com/gpu", device.GPU, []device.Device{{ID: "g1"}})
		if err := p.Publish(ctx, told{&admission.Announced{
			Tree: &topology.Tree{}, Resources: []*device.Resource{gpus},
			Before: holders.Sources{
				Before: holders.Holders{{
					UID: "u1", Name: "c", Devices: kubelet.Devices{"amd.com/gpu": {"g1"}}, Life: "1",
				}},
				Known: map[string]holders.Known{"u1": {Told: true}},
				Life:  "2",
			},
		}}); err != nil {
			t.Error(err)
		}
		want := []v1alpha1.Held{{UID: "u1", Containers: []v1alpha1.Container{
			{Name: "c", Devices: map[string]v1alpha1.Set{"amd.com/gpu": "0"}},
		}}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("published holders: %+v, want %+v", got, want)
		}
	})
}

// A target that is no longer kept up to date here has no note: the other plugin may publish then, and nobody
// would take the note back.
func TestEndedTargetHasNoNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		k := keeper{Publisher: newOf(t, Config{}), sink: target{}, newest: &system.Newest[*Facts]{}}
		go k.keepWritten(ctx)
		k.newest.Set(&Facts{})
		synctest.Wait()
		if all := k.notes.allNotes(); len(all) != 1 {
			t.Errorf("notes of a target that fails: %q", all)
		}
		cancel()
		synctest.Wait()
		if all := k.notes.allNotes(); len(all) > 0 {
			t.Errorf("notes of a target that has ended: %q", all)
		}
	})
}

// After a start of the kubelet the published content is read again: the node can be another one of its name.
func TestKubeletStartMakesTargetsReadAgain(t *testing.T) {
	times := 0
	p := newOf(t, Config{Sinks: []Sink{target{forget: func() { times++ }}}})
	for change, want := range map[Change]int{Written: 0, Started: 1} {
		times = 0
		if p.noteChange(change); times != want {
			t.Errorf("change %d: the content is read again %d times, want %d", change, times, want)
		}
	}
}

// TestWatch: the files of facts and the kubelet's start are watched; other files are not.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	if err := checkpoint.Write(dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, done := make(chan Change), make(chan struct{})
	go func() {
		defer close(done)
		watchFolder(dir, slog.New(slog.DiscardHandler))(ctx, events)
	}()
	defer func() { cancel(); <-done }()
	for _, c := range []struct {
		want  Change
		write func() error
	}{
		{Written, func() error { return checkpoint.Write(dir, nil, nil) }},
		{Started, func() error {
			socket := filepath.Join(dir, "device-plugins", "kubelet.sock")
			_ = os.Remove(socket) // of the attempt before
			return os.WriteFile(socket, nil, 0o600)
		}},
		{Written, func() error {
			return os.WriteFile(filepath.Join(dir, kubelet.CPUStateFile), []byte("{}"), 0o600)
		}},
	} {
		await(t, events, c.want, c.write)
	}
}

// await repeats a write until there is an event, because the watch begins after the start.
func await(t *testing.T, events <-chan Change, want Change, write func() error) {
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

// After a failure a target rests as long as the API server asks; the pause doubles up to its limit.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const asked = 30 * time.Second
		k := keeper{Publisher: &Publisher{}}
		began := time.Now()
		k.restAfter(t.Context(), apierrors.NewTooManyRequests("busy", int(asked.Seconds())))
		if took := time.Since(began); took != asked || k.pause != firstPause {
			t.Errorf("rested %s, want %s; pause %s", took, asked, k.pause)
		}
		for want := 2 * firstPause; want < 4*maxPause; want *= 2 {
			k.restAfter(t.Context(), errors.New("unreachable"))
			if k.pause != min(want, maxPause) {
				t.Errorf("pause %s, want %s", k.pause, min(want, maxPause))
			}
		}
	})
}
