// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// The kubelet forgets the devices of an Allocate that is open while PodResources is listed: then it is not.
func TestNoListWhileAnAllocateIsOpen(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	a.keepCheckpoint()
	looks := a.countLooks()
	a.add("pod")
	a.coordinator.reader.inFlight.addAllocate(vfs, []string{"0000:0c:00.1"}, false) // of a pod worker
	a.ask(gpus, 0, 1)
	if *looks > 0 {
		t.Error("PodResources was listed")
	}
	a.coordinator.reader.inFlight.endAllocate(vfs, []string{"0000:0c:00.1"})
	a.ask(gpus, 0, 1)
	if *looks != 1 {
		t.Errorf("%d looks after the Allocate has returned", *looks)
	}
	a.coordinator.reader.inFlight.addAllocate(vfs, []string{"0000:0c:00.1"}, false) // its plugin dies
	a.announce()                                                                    // another plugin's devices
	a.ask(gpus, 0, 1)
	if *looks != 1 {
		t.Errorf("%d looks while an Allocate is open and a plugin announces", *looks)
	}
	a.now = a.now.Add(maxOpen + 1)
	a.ask(gpus, 0, 1)
	if *looks != 2 {
		t.Errorf("%d looks long after an Allocate that never returned", *looks)
	}
}

// The end of an Allocate whose plugin no longer waits can overtake its start: the Allocate is not open.
func TestEndBeforeALateAllocate(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	a.keepCheckpoint()
	looks := a.countLooks()
	a.add("pod")
	late, cancel := context.WithCancel(t.Context())
	cancel()
	vf := []string{"0000:0c:00.1"}
	_ = a.coordinator.Returned(vfs, vf, false)
	_, _ = a.coordinator.Allocated(late, vfs, vf)
	if a.ask(gpus, 0, 1); *looks != 1 {
		t.Errorf("%d looks although the Allocate has ended", *looks)
	}
	_, _ = a.coordinator.Allocated(t.Context(), vfs, vf) // the plugin waits: the end was another one's
	if a.ask(gpus, 0, 1); *looks != 1 {
		t.Errorf("%d looks while an Allocate is open", *looks)
	}
}

// A plugin that is gone has no open Allocate.
func TestAllocateOfAGonePlugin(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	a.keepCheckpoint()
	looks := a.countLooks()
	a.add("pod")
	_, _ = a.coordinator.Allocated(t.Context(), vfs, []string{"0000:0c:00.1"})
	a.coordinator.Leave(vfs)
	if a.ask(gpus, 0, 1); *looks != 1 {
		t.Errorf("%d looks although the plugin has ended", *looks)
	}
}

// The fate of a pod is read for the admission that is open then. Meanwhile another container comes, and keeps
// its devices.
func TestFateIsOfItsAdmission(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	a.keepCheckpoint()
	gone := a.add("gone")
	a.pods[gone]["c"] = kubelet.Devices{}
	ids, _ := a.ask(gpus, 0, 1)
	a.take(gone, gpus, ids)
	a.remove(gone)
	get, asked := sourcesOf(a.coordinator).get, false
	var later []string
	sourcesOf(a.coordinator).get = func(ctx context.Context, pod kubelet.Pod) (kubelet.View, error) {
		view, err := get(ctx, pod)
		if pod == gone && !asked {
			asked = true
			next := a.add("next")
			a.pods[next]["c"] = kubelet.Devices{}
			later, _ = a.ask(gpus, 0, 2)
			a.take(next, gpus, later)
		}
		return view, err
	}
	a.allocated(vfs, []string{a.free[vfs][len(a.free[vfs])-1].ID}) // of a pod worker
	if !asked {
		t.Fatal("the fate of the pod was not read: this shows nothing")
	}
	for _, id := range later {
		if a.coordinator.holderOf(gpus, id) == "" {
			t.Errorf("GPU %s of the later container is free", id)
		}
	}
}

// A plugin's word that an Allocate has failed closes no admission if no plugin has such a resource.
func TestFailedAllocateOfAnUnknownResource(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	a.keepCheckpoint()
	ids, _ := a.ask(gpus, 0, 1)
	a.allocated(gpus, ids)
	_ = a.coordinator.Returned("example.com/unknown", []string{"x"}, true)
	if a.coordinator.current().open == nil || a.coordinator.holderOf(gpus, ids[0]) == "" {
		t.Error("the admission is closed")
	}
}

// Pods of which none could be read are not a list without pods.
func TestNoPodReadIsUnknown(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	sourcesOf(a.coordinator).get = func(context.Context, kubelet.Pod) (kubelet.View, error) {
		return kubelet.View{}, kubelet.ErrNotRead
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	pods := make([]kubelet.Pod, getBurst+2)
	if view, found := a.coordinator.reader.readPods(ctx, pods); view.IsKnown() || found != nil {
		t.Errorf("a view is known, of the pods %v", found)
	}
}

// A device that the kubelet offers and that has vanished is not one that the kubelet withholds for a holder.
func TestVanishedIsNotWithheld(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	all := ids(a.all[vfs])
	q := &api.PreferRequest{Resource: vfs, Available: all[2:], Vanished: all[:1], Size: 1}
	if got := withheldFrom(q, a.coordinator.current().resources[vfs]); slices.Contains(got, all[0]) {
		t.Errorf("withheld are %v", got)
	}
}

// An Allocate can take long in its plugin: the next question of the container comes soon after its end.
func TestRecentIsAfterTheEnd(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	if _, err := a.coordinator.Allocated(t.Context(), gpus, []string{"0000:11:00.0"}); err != nil {
		t.Fatal(err)
	}
	a.now = a.now.Add(10 * FollowWindow)
	if a.coordinator.current().open.isRecent(a.now) {
		t.Error("recent before the end, after a long time")
	}
	_ = a.coordinator.Returned(gpus, []string{"0000:11:00.0"}, false)
	if !a.coordinator.current().open.isRecent(a.now) {
		t.Error("not recent at the end")
	}
}
