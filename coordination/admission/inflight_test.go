// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// The kubelet forgets the devices of an Allocate that is open while PodResources is listed: then it is not.
func TestNoListWhileAnAllocateIsOpen(t *testing.T) {
	t.Parallel()
	const plugin, older = 7, 0
	a := untold(t)
	looks := a.countReads()
	a.add("pod")
	open := a.coordinator.Allocates
	tell, leave := open.AddStream(plugin)
	var again func(uint64, []uint64)
	for _, step := range []struct {
		what  string
		do    func()
		blind bool
	}{
		{"a call starts", func() { open.StartCall(plugin, 1) }, true},
		{"its plugin tells of it", func() { tell(1, []uint64{1}) }, true},
		{"the plugin hangs", func() { a.now = a.now.Add(time.Hour) }, true},
		{"another plugin announces", a.announce, true},
		{"the call ends", func() { open.EndCall(plugin, 1) }, false},
		{"what the plugin told before comes late", func() { tell(0, []uint64{1}) }, false},
		{"the next call starts", func() { open.StartCall(plugin, 3) }, true},
		{"the plugin tells of the first", func() { tell(2, nil) }, true},
		{"the plugin tells of the end", func() { tell(4, nil) }, false},
		{"the call comes after its end", func() { open.StartCall(plugin, 3) }, false},
		{"a call comes first by its plugin's word", func() { tell(5, []uint64{5}) }, true},
		{"the stream breaks", func() { leave() }, true},
		{"the plugin connects again", func() { again, leave = open.AddStream(plugin) }, true},
		{"the plugin hangs again", func() { a.now = a.now.Add(time.Hour) }, true},
		{"and tells of no call", func() { again(6, nil) }, false},
		{"a call starts, and the plugin dies", func() { open.StartCall(plugin, 7); leave() }, true},
		{"it does not come back", func() { a.now = a.now.Add(maxUntold + 1) }, false},
		{"a call of an older plugin starts", func() { open.StartCall(older, 9) }, true},
		{"and ends", func() { open.EndCall(older, 9) }, false},
		{"another one starts", func() { open.StartCall(older, 9) }, true},
		// two reports of 80 ms, the pairs of 400 ms and two handouts of a second
		{"and takes 2.6 s", func() { a.now = a.now.Add(2600 * time.Millisecond) }, true},
		{"and its end is never read, while others come and go", func() {
			open.StartCall(older, 10)
			open.EndCall(older, 10)
			a.now = a.now.Add(maxUntold / 2)
			open.StartCall(older, 11)
			open.EndCall(older, 11)
		}, false},
		{"the last one starts", func() { open.StartCall(older, 12) }, true},
		{"its plugin dies", func() { a.now = a.now.Add(maxUntold + 1) }, false},
	} {
		step.do()
		looks.Store(0)
		if a.ask(gpus, 0, 1); (looks.Load() == 0) != step.blind {
			t.Fatalf("%s: %d looks", step.what, looks.Load())
		}
	}
}

// The fate of a pod is read for the admission that is open then. Meanwhile another container comes, and keeps
// its devices.
func TestFateIsOfItsAdmission(t *testing.T) {
	t.Parallel()
	a := untold(t)
	gone := a.add("gone")
	a.pods[gone]["c"] = kubelet.Devices{}
	a.serve(gone, gpus, 0, 1)
	a.remove(gone)
	get, asked := sourcesOf(a.coordinator).get, false
	var later []string
	sourcesOf(a.coordinator).get = func(ctx context.Context, pod kubelet.Pod) (kubelet.View, error) {
		view, err := get(ctx, pod)
		if pod == gone && !asked {
			asked = true
			next := a.add("next")
			a.pods[next]["c"] = kubelet.Devices{}
			later, _ = a.serve(next, gpus, 0, 2)
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
	a := untold(t)
	ids, _ := a.ask(gpus, 0, 1)
	a.allocated(gpus, ids)
	_ = a.coordinator.Returned(t.Context(), "example.com/unknown", []string{"x"}, true)
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
	_ = a.coordinator.Returned(t.Context(), gpus, []string{"0000:11:00.0"}, false)
	if !a.coordinator.current().open.isRecent(a.now) {
		t.Error("not recent at the end")
	}
}

// A look waits a moment for the word that an Allocate has returned, and until the kubelet has the response.
func TestLookWaitsForAnAllocateToReturn(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]bool{
		returnedLimit / 4: true, 2 * returnedLimit: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAllocates(time.Now)
			a.StartCall(1, 1)
			a.StartCall(2, 1)
			go func() {
				a.EndCall(2, 1)
				<-time.After(wait)
				a.EndCall(1, 1)
			}()
			began := time.Now()
			got := a.awaitNone(t.Context())
			if took := time.Since(began); got != want || took != min(wait+handover, returnedLimit) {
				t.Errorf("settled %t after %s, want %t", got, took, want)
			}
			synctest.Wait()
			<-time.After(wait)
		})
	}
}
