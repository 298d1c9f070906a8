// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
)

// A plugin that no longer waits for the coordinator goes on with the Allocate, for up to system.PairsLimit,
// and reports the end: until then PodResources is not listed.
func TestLateAllocateIsOpen(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	a.keepCheckpoint()
	look, looks := sourcesOf(a.coordinator).look, 0
	sourcesOf(a.coordinator).look = func(ctx context.Context) (kubelet.View, error) {
		looks++
		return look(ctx)
	}
	a.add("pod")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	given := []string{"0000:0c:00.1"} // of a pod worker
	if _, err := a.coordinator.Allocated(ctx, vfs, given); err != nil {
		t.Fatal(err)
	}
	if a.ask(gpus, 0, 1); looks > 0 {
		t.Error("PodResources was listed: the kubelet forgets the devices of the open Allocate")
	}
	_ = a.coordinator.Returned(vfs, given, false)
	if a.ask(gpus, 0, 1); looks == 0 {
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
			a.coordinator.Observer = refusedObserver{newTallied(), func() {
				late, version = late+1, a.coordinator.current().version
				cancel()
			}}
			taken, err := a.coordinator.Allocated(ctx, name, given[name])
			if err != nil || taken.Refusal != "" {
				t.Errorf("%v, %s: %q, %v", order, name, taken.Refusal, err)
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
		if c := a.coordinator.current().open.container; c.Lacks(gpus) || c.Lacks(vfs) {
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
	a.coordinator.Observer = refusedObserver{newTallied(), cancel}
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
	a.coordinator.Observer = refusedObserver{newTallied(), cancel}
	if _, err := a.coordinator.Allocated(ctx, vfs, a.pods[first]["c"][vfs]); err != nil || ctx.Err() == nil {
		t.Fatal(err, ctx.Err())
	}
	if holder := a.coordinator.holderOf(gpus, gpu[0]); holder == "" {
		t.Error("the GPU of the first half is free, and its container runs")
	}
}
