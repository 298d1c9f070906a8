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

// The kubelet forgets the devices of an Allocate that is open while PodResources is listed: then it is not. A
// plugin that no longer waits for the coordinator goes on with the Allocate, for up to 400 ms.
func TestNoListWhileAnAllocateIsOpen(t *testing.T) {
	t.Parallel()
	vf := []string{"0000:0c:00.1"} // of a pod worker
	begin := func(a *admission) { _, _ = a.coordinator.Allocated(t.Context(), vfs, vf) }
	beginLate := func(a *admission) {
		late, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = a.coordinator.Allocated(late, vfs, vf)
	}
	end := func(a *admission) { _ = a.coordinator.Returned(vfs, vf, false) }
	leave := func(a *admission) { a.coordinator.Leave(vfs) }
	long := func(a *admission) { a.now = a.now.Add(maxOpen + 1) }
	type step struct {
		do    func(*admission)
		looks int // at the next question
	}
	for name, steps := range map[string][]step{
		"it returns":                              {{begin, 0}, {end, 1}},
		"it returns late":                         {{beginLate, 0}, {end, 1}},
		"its plugin dies, and another announces":  {{begin, 0}, {(*admission).announce, 0}, {long, 1}},
		"its plugin leaves":                       {{begin, 0}, {leave, 1}},
		"its end overtakes its late start":        {{func(a *admission) { end(a); beginLate(a) }, 1}},
		"its plugin waits: the end was another's": {{end, 1}, {begin, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := untold(t)
			looks := a.countLooks()
			a.add("pod")
			for i, s := range steps {
				*looks = 0
				s.do(a)
				if a.ask(gpus, 0, 1); *looks != s.looks {
					t.Errorf("step %d: PodResources was listed %d times, want %d", i, *looks, s.looks)
				}
			}
		})
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

// A look waits a moment for the word that an Allocate has returned.
func TestLookWaitsForAnAllocateToReturn(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]bool{
		returnedLimit / 2: true, 2 * returnedLimit: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newOpenAllocates(time.Now)
			f.addAllocate(gpus, []string{"b", "a"}, false)
			f.addAllocate(vfs, []string{"c"}, false)
			go func() {
				f.endAllocate(vfs, []string{"c"})
				<-time.After(wait)
				f.endAllocate(gpus, []string{"a", "b"})
			}()
			began := time.Now()
			if got := f.awaitNone(t.Context()); got != want || time.Since(began) > returnedLimit {
				t.Errorf("settled %t after %s, want %t", got, time.Since(began), want)
			}
			synctest.Wait()
			<-time.After(wait)
		})
	}
}

// An Allocate is open while its plugin may hang, and no longer.
func TestAllocateStaysOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newOpenAllocates(time.Now)
		f.addAllocate(gpus, []string{"a"}, false)
		<-time.After(maxOpen)
		if f.nextEnd() == nil {
			t.Error("an Allocate that hangs has ended")
		}
		<-time.After(time.Nanosecond)
		if f.nextEnd() != nil {
			t.Error("an Allocate of a plugin that has died is open for ever")
		}
	})
}
