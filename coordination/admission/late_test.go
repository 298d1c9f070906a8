// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
)

// A question whose asker has given up, or during which the kubelet allocates, decides nothing by what it read
// before.
func TestLateQuestionChangesNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		giveUp    bool // before the look ends
		lookFails bool
	}{
		"given up":                           {true, false},
		"given up, the look fails":           {true, true},
		"still waited for":                   {false, false},
		"still waited for, and a look fails": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
			a.keepCheckpoint()
			pod := a.add("pod")
			asked, goOn := make(chan struct{}), make(chan struct{})
			look, looks := sourcesOf(a.coordinator).look, 0
			sourcesOf(a.coordinator).look = func(ctx context.Context) (kubelet.View, error) {
				view, err := look(ctx)
				if looks++; looks > 1 {
					return view, err
				}
				close(asked)
				<-goOn
				if tc.lookFails {
					return kubelet.View{}, errors.New("the kubelet is busy")
				}
				return view, err
			}
			offered := ids(a.aligned(gpus, []int{0}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			answered := make(chan error, 1)
			go func() {
				_, _, err := a.coordinator.Prefer(ctx, &api.PreferRequest{Resource: gpus, Available: offered, Size: 2})
				answered <- err
			}()
			<-asked
			if tc.giveUp {
				cancel()
			}
			given := offered[2:4] // what the plugin chose alone
			if refusal := a.take(pod, gpus, given); refusal != "" {
				t.Fatal(refusal)
			}
			saved := a.coordinator.current()
			close(goOn)
			if err := <-answered; (err != nil) != tc.giveUp {
				t.Errorf("late answer: %v", err)
			}
			if tc.giveUp && a.coordinator.current() != saved {
				t.Error("the late question changed the state")
			}
			for _, id := range given {
				if a.coordinator.holderOf(gpus, id) == "" {
					t.Errorf("%s is given to nobody", id)
				}
			}
			if !tc.giveUp && looks != 2 {
				t.Errorf("%d looks, want another one after the Allocate", looks)
			}
		})
	}
}

func ids(devices []device.Device) []string {
	var all []string
	for _, d := range devices {
		all = append(all, d.ID)
	}
	slices.Sort(all)
	return all
}

// A refusal that nobody hears any more is none: the container has the devices.
func TestLateRefusalIsNone(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	first, other := a.add("first"), a.add("other")
	for _, pod := range []kubelet.Pod{first, other} {
		if !a.admit(pod, "worker", wish{1, 1}) {
			t.Fatal("not admitted")
		}
	}
	taken := a.pods[first]["worker"][vfs]
	ctx, cancel := context.WithCancel(t.Context())
	get := sourcesOf(a.coordinator).get
	sourcesOf(a.coordinator).get = func(ctx context.Context, pod kubelet.Pod) (kubelet.View, error) {
		defer cancel()
		return get(ctx, pod)
	}
	if answer, err := a.coordinator.Allocated(ctx, vfs, taken); answer.GetRefusal() != "" ||
		len(answer.GetDevices()) != 1 || err != nil {
		t.Errorf("answer %+v, %v", answer, err)
	}
	if held := a.coordinator.holderOf(vfs, taken[0]); held == "team/first/worker" {
		t.Error("the coordinator does not know that the kubelet has given the device out again")
	}
}

// A refusal that is decided in time, and that the plugin does not wait for any more, is none either.
func TestRefusalThatComesLateIsNone(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	first := a.add("first")
	if !a.admit(first, "worker", wish{1, 1}) {
		t.Fatal("not admitted")
	}
	taken := a.pods[first]["worker"][vfs]
	ctx, cancel := context.WithCancel(t.Context())
	a.coordinator.Observer = onRefusal(cancel)
	answer, err := a.coordinator.Allocated(ctx, vfs, taken)
	if answer.GetRefusal() != "" || len(answer.GetDevices()) != 1 || err != nil || ctx.Err() == nil {
		t.Errorf("answer %+v, %v, %v", answer, err, ctx.Err())
	}
	if held := a.coordinator.holderOf(vfs, taken[0]); held == "team/first/worker" {
		t.Error("the coordinator does not know that the kubelet has given the device out again")
	}
}

// onRefusal calls a function after each refusal.
func onRefusal(do func()) func(event any) {
	return func(event any) {
		if v, is := event.(Verdict); is && v.Refusal != "" {
			do()
		}
	}
}

// A question that nobody waits for any longer plans nothing, although nothing else has happened meanwhile.
func TestGivenUpQuestionChangesNothing(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	a.keepCheckpoint()
	a.add("pod")
	ctx, cancel := context.WithCancel(t.Context())
	look := sourcesOf(a.coordinator).look
	sourcesOf(a.coordinator).look = func(ctx context.Context) (kubelet.View, error) {
		defer cancel()
		return look(ctx)
	}
	before := a.coordinator.current()
	_, _, err := a.coordinator.Prefer(ctx, &api.PreferRequest{
		Resource: gpus, Available: ids(a.aligned(gpus, []int{0})), Size: 2,
	})
	if !errors.Is(err, context.Canceled) || a.coordinator.current() != before {
		t.Errorf("the state has changed, or no error: %v", err)
	}
}

// A question during the reads of another question waits for its turn, so that no question reads twice.
func TestQuestionsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
		a.keepCheckpoint()
		a.add("pod")
		q := &api.PreferRequest{Resource: gpus, Available: ids(a.aligned(gpus, []int{0})), Size: 2}
		look, looks := sourcesOf(a.coordinator).look, 0
		var others sync.WaitGroup
		ask := func(ctx context.Context, want error) {
			if _, _, err := a.coordinator.Prefer(ctx, q); !errors.Is(err, want) {
				t.Errorf("a question: %v, want %v", err, want)
			}
		}
		sourcesOf(a.coordinator).look = func(ctx context.Context) (kubelet.View, error) {
			if looks++; looks == 1 {
				given, cancel := context.WithCancel(ctx)
				others.Go(func() { ask(given, context.Canceled) })
				others.Go(func() { ask(t.Context(), nil) })
				synctest.Wait()
				if looks != 1 {
					t.Errorf("%d reads of the kubelet in the turn of one question", looks)
				}
				cancel()
				synctest.Wait()
			}
			return look(ctx)
		}
		ask(t.Context(), nil)
		if others.Wait(); looks != 2 {
			t.Errorf("%d reads of the kubelet, want 2", looks)
		}
	})
}

// A plugin that no longer waits for the coordinator goes on with the Allocate, for up to 400 ms, and
// reports the end: until then PodResources is not listed.
func TestLateAllocateIsOpen(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	a.keepCheckpoint()
	looks := a.countLooks()
	a.add("pod")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	given := []string{"0000:0c:00.1"} // of a pod worker
	if _, err := a.coordinator.Allocated(ctx, vfs, given); err != nil {
		t.Fatal(err)
	}
	if a.ask(gpus, 0, 1); *looks > 0 {
		t.Error("PodResources was listed: the kubelet forgets the devices of the open Allocate")
	}
	_ = a.coordinator.Returned(vfs, given, false)
	if a.ask(gpus, 0, 1); *looks == 0 {
		t.Error("PodResources was not listed after the end")
	}
}

// As TestLateAllocateOfStrictPodIsRecorded, with a refusal that was decided in time and is answered late.
func TestLateRefusalOfStrictPod(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{gpus, vfs}, {vfs, gpus}} {
		a, given := scarce(t, intent.PodsAPI)
		strict := a.pending("strict", wish{4, 2})
		strict.Alignment = intent.Required
		late, version := 0, 0
		for _, name := range order {
			ctx, cancel := context.WithCancel(t.Context())
			a.coordinator.Observer = onRefusal(func() {
				late, version = late+1, a.coordinator.current().version
				cancel()
			})
			taken, err := a.coordinator.Allocated(ctx, name, given[name])
			if err != nil || taken.GetRefusal() != "" {
				t.Errorf("%v, %s: %q, %v", order, name, taken.GetRefusal(), err)
			}
			_ = a.coordinator.Returned(name, given[name], false)
			cancel()
		}
		if late == 0 {
			t.Fatalf("%v: no refusal: this shows nothing", order)
		}
		if now := a.coordinator.current().version; now == version {
			t.Errorf("%v: a question read after the refusal does not see that it is undone", order)
		}
		for _, name := range order {
			held := a.coordinator.heldOf(name)
			for _, id := range given[name] {
				if !slices.Contains(held, id) {
					t.Errorf("%v: %s %s is not held", order, name, id)
				}
			}
		}
		if c := a.coordinator.current().open.Container; c.Lacks(gpus) || c.Lacks(vfs) {
			t.Errorf("%v: the container %v has %v", order, c.Name(), c.Devices)
		}
		if n := len(a.coordinator.current().allocates); n != 2 {
			t.Errorf("%v: %d Allocates, want 2", order, n)
		}
	}
}

// The pairs file of a container, requested with its VFs, has the GPUs whose refusal came too late.
func TestPairsFileAfterALateRefusal(t *testing.T) {
	t.Parallel()
	a, given := scarce(t, intent.PodsAPI)
	dir := a.movePairs()
	strict := a.pending("strict", wish{4, 2})
	strict.Alignment = intent.Required
	if refusal := a.take(strict.Pod, vfs, given[vfs]); refusal != "" {
		t.Fatal(refusal)
	}
	file := filepath.Join(dir, "file.json")
	var named []pairs.VF
	for _, id := range given[vfs] {
		named = append(named, pairs.VF{ID: id, Address: a.address(vfs, id), Resource: vfs})
	}
	if _, written, _ := a.coordinator.Pair(vfs, given[vfs], file, named); !written {
		t.Fatal("the file is not written")
	}
	ctx, cancel := context.WithCancel(t.Context())
	a.coordinator.Observer = onRefusal(cancel)
	if _, err := a.coordinator.Allocated(ctx, gpus, given[gpus]); err != nil || ctx.Err() == nil {
		t.Fatal(err, ctx.Err())
	}
	got, err := pairs.Read(file)
	if err != nil || len(got.Pairs) == 0 || got.Pairs[0].GPU == nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// A container whose second half another pod has, which is refused too late, keeps its first half.
func TestLateDoubleKeepsTheFirstHalf(t *testing.T) {
	t.Parallel()
	a := told(t)
	first := a.pending("first", wish{1, 1}).Pod
	for _, name := range []string{gpus, vfs} {
		chosen, _ := a.ask(name, 0, 1)
		a.take(first, name, chosen)
	}
	a.keep(first)
	next := a.pending("next", wish{1, 1}).Pod
	gpu, _ := a.ask(gpus, 0, 1)
	a.take(next, gpus, gpu)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a.coordinator.Observer = onRefusal(cancel)
	if _, err := a.coordinator.Allocated(ctx, vfs, a.pods[first]["c"][vfs]); err != nil || ctx.Err() == nil {
		t.Fatal(err, ctx.Err())
	}
	if holder := a.coordinator.holderOf(gpus, gpu[0]); holder == "" {
		t.Error("the GPU of the first half is free, and its container runs")
	}
}
