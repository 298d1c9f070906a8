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
	for name, during := range map[string]struct{ giveUp, allocate, lookFails bool }{
		"given up":                                {giveUp: true},
		"given up, an Allocate":                   {giveUp: true, allocate: true},
		"given up, an Allocate, the look fails":   {giveUp: true, allocate: true, lookFails: true},
		"waited for, an Allocate":                 {allocate: true},
		"waited for, an Allocate, the look fails": {allocate: true, lookFails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := untold(t)
			pod := a.add("pod")
			offered := ids(a.aligned(gpus, []int{0}))
			given := offered[2:4] // what the plugin chose alone
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			look, looks, saved := sourcesOf(a.coordinator).look, 0, a.coordinator.current()
			sourcesOf(a.coordinator).look = func(ctx context.Context) (kubelet.View, error) {
				view, err := look(ctx)
				if looks++; looks > 1 {
					return view, err
				}
				if during.giveUp {
					cancel()
				}
				if during.allocate {
					a.take(pod, gpus, given)
					saved = a.coordinator.current()
				}
				if during.lookFails {
					return kubelet.View{}, errors.New("the kubelet is busy")
				}
				return view, err
			}
			_, _, err := a.coordinator.Prefer(ctx, &api.PreferRequest{Resource: gpus, Available: offered, Size: 2})
			switch {
			case !during.giveUp && (err != nil || looks != 2):
				t.Errorf("%v after %d looks, want another one after the Allocate", err, looks)
			case during.giveUp && (!errors.Is(err, context.Canceled) || a.coordinator.current() != saved):
				t.Errorf("the state has changed, or no error: %v", err)
			}
			for _, id := range given {
				if during.allocate && a.coordinator.holderOf(gpus, id) == "" {
					t.Errorf("%s is given to nobody", id)
				}
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

// refused are Allocates of a container, in order, that are refused if their plugin waits.
type refused struct {
	*admission
	order []string
	given map[string][]string // by resource
}

// apartIn is a strict pod whose GPUs are far from its VFs.
func apartIn(order []string) func(t *testing.T) refused {
	return func(t *testing.T) refused {
		a := told(t)
		given := a.scarce()
		a.pending("strict", wish{4, 2}).Alignment = intent.Required
		return refused{a, order, given}
	}
}

// double is a pod with a VF that another pod has.
func double(t *testing.T) refused {
	a := told(t)
	first := a.pending("first", wish{1, 1}).Pod
	a.serve(first, gpus, 0, 1)
	vf, _ := a.serve(first, vfs, 0, 1)
	a.keep(first)
	a.pending("next", wish{1, 1})
	gpu, _ := a.ask(gpus, 0, 1)
	return refused{a, []string{gpus, vfs}, map[string][]string{gpus: gpu, vfs: vf}}
}

// A refusal that the plugin does not wait for is none: the container has both halves.
func TestLateRefusalIsNone(t *testing.T) {
	t.Parallel()
	before := func(_ *admission, giveUp func()) { giveUp() }
	during := func(a *admission, giveUp func()) {
		get := sourcesOf(a.coordinator).get
		sourcesOf(a.coordinator).get = func(ctx context.Context, pod kubelet.Pod) (kubelet.View, error) {
			giveUp()
			return get(ctx, pod)
		}
	}
	after := func(a *admission, giveUp func()) { a.coordinator.Observer = onRefusal(giveUp) }
	for name, c := range map[string]struct {
		begin func(t *testing.T) refused
		until func(a *admission, giveUp func()) // the plugin waits
	}{
		"double, before":             {double, before},
		"double, while Get answers":  {double, during},
		"double, refused":            {double, after},
		"GPUs, then far VFs, before": {apartIn([]string{gpus, vfs}), before},
		"GPUs, far VFs, refused":     {apartIn([]string{gpus, vfs}), after},
		"VFs, then far GPUs, before": {apartIn([]string{vfs, gpus}), before},
		"VFs, far GPUs, refused":     {apartIn([]string{vfs, gpus}), after},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := c.begin(t)
			var late *state // that a question read when the plugin gave up
			for _, name := range r.order {
				ctx, cancel := context.WithCancel(t.Context())
				c.until(r.admission, func() {
					late = r.coordinator.current()
					cancel()
				})
				taken, err := r.coordinator.Allocated(ctx, name, r.given[name])
				if err != nil || taken.GetRefusal() != "" {
					t.Errorf("%s: %q, %v", name, taken.GetRefusal(), err)
				}
				_ = r.coordinator.Returned(t.Context(), name, r.given[name], false)
				cancel()
			}
			now := r.coordinator.current()
			if late == nil || now.version == late.version {
				t.Error("no plugin gave up, or a question read then does not see that the container has the devices")
			}
			for name, given := range r.given {
				for _, id := range given {
					if holder := r.coordinator.holderOf(name, id); holder == "" || holder == "team/first/c" {
						t.Errorf("%s %s is held by %q", name, id, holder)
					}
				}
			}
			if c := now.open.Container; c.Lacks(gpus) || c.Lacks(vfs) || len(now.allocates) != 2 {
				t.Errorf("the container %v has %v by the Allocates %v", c.Name(), c.Devices, now.allocates)
			}
		})
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

// A question during the reads of another question waits for its turn, so that no question reads twice.
func TestQuestionsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := untold(t)
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

// The pairs file of a container, requested with its VFs, has the GPUs whose refusal came too late.
func TestPairsFileAfterALateRefusal(t *testing.T) {
	t.Parallel()
	a := told(t)
	given, dir := a.scarce(), a.movePairs()
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
