// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// The kubelet asks for devices of pod a, rejects the pod without an Allocate that reaches the coordinator,
// and allocates for pod b without a question: other devices, or the same.
func TestAllocateAfterLostQuestion(t *testing.T) {
	t.Parallel()
	for name, same := range map[string]bool{"other devices": false, "the same devices": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
			a.source, a.coordinator.MayList = intent.PodsAPI, false
			offered := ids(a.all[gpus][:4])
			if same { // the only GPU, without a free VF on its switch
				offered = offered[:1]
				_, a.all[vfs] = a.split(a.all[vfs], a.address(gpus, offered[0]))
				a.announce()
			}
			asks := a.pending("a", wish{1, 1})
			asks.Alignment = intent.Required
			given, _ := a.prefer(gpus, offered, nil, 1)
			if !same {
				given = slices.DeleteFunc(offered, func(id string) bool { return id == given[0] })[:1]
			}
			a.remove(asks.Pod)
			a.pending("b", wish{1, 1})
			taken, err := a.coordinator.Allocated(t.Context(), gpus, given)
			if err != nil || taken.GetRefusal() != "" || taken.GetContainer().GetPod() != "b" {
				t.Errorf("given to %v, want pod b: %q, %v", taken.GetContainer(), taken.GetRefusal(), err)
			}
			for pod, allocated := range map[string]int{"a": 0, "b": 1} {
				decisions, _ := a.coordinator.Explain(t.Context(), "team", pod, "")
				has := 0
				for _, d := range decisions {
					has += len(d.GetAllocated())
				}
				if has != allocated {
					t.Errorf("explain %s: %v", pod, decisions)
				}
			}
		})
	}
}

// A plugin fails the Allocate of the second half of a container: the kubelet rejects the pod. The next
// Allocate, at once and without a question, is of another container.
func TestAllocateAfterAFailedOne(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		resource string
		failed   []string
	}{
		"of the second half":                  {vfs, []string{"0000:0c:00.1"}},
		"of the first half, after its report": {gpus, []string{"0000:11:00.0"}},
	} {
		a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
		a.keepCheckpoint()
		c := a.coordinator
		a.allocated(gpus, []string{"0000:11:00.0"})
		_ = c.Returned(t.Context(), of.resource, of.failed, true)
		if holder := c.holderOf(gpus, "0000:11:00.0"); holder != "" {
			t.Errorf("%s: the rejected container holds the GPU: %s", name, holder)
		}
		a.allocated(vfs, []string{"0000:0c:00.1"})
		if to := c.current().open.Container; !to.Lacks(gpus) {
			t.Errorf("%s: the container of the VF has the rejected container's GPU: %v", name, to.Devices)
		}
	}
}

// loseRecords starts a kubelet without its records: it shows running containers without devices.
func (a *admission) loseRecords() {
	sourcesOf(a.coordinator).life = func() string { return "a later kubelet" }
	for pod := range a.pods {
		a.pods[pod] = map[string]kubelet.Devices{"c": {}}
	}
	clear(a.recordedPods)
	a.record()
}

// The coordinator keeps what running containers have whose records the kubelet has lost. So does the next
// server, also if it starts at the same time as the kubelet: its file has the holders of the last search.
func TestLostRecords(t *testing.T) {
	t.Parallel()
	for _, starts := range []bool{false, true} { // at the same time
		a := told(t)
		_, held := a.start("owner", vfs)
		a.serve(a.pending("second", wish{1, 0}).Pod, gpus, 0, 1)
		a.loseRecords()
		for question := range 2 {
			if starts || question > 0 {
				a.takeOver()
				if got := a.coordinator.holderOf(vfs, held[0]); got != "team/owner/c" {
					t.Errorf("starts %t, takeover before question %d: the VF is held by %q", starts, question, got)
				}
			}
			a.pending("asks", wish{1, 0})
			a.ask(gpus, 0, 1)
			if got := a.coordinator.holderOf(vfs, held[0]); got != "team/owner/c" {
				t.Errorf("starts %t, question %d: the VF is held by %q", starts, question, got)
			}
		}
	}
}

// lostNewest returns an admission under a kubelet that has started without its records, and the GPU of its
// newest container, which no question has followed. All pods run.
func lostNewest(t *testing.T, source intent.Source) (a *admission, gpu string) {
	t.Helper()
	a = told(t)
	a.source = source
	a.start("first", vfs)
	_, held := a.start("newest", gpus)
	for i := range a.specs {
		a.specs[i].Started = true
	}
	a.loseRecords()
	a.freeAll()
	return a, held[0]
}

// checkHeld checks that a GPU is chosen for nobody, and held.
func (a *admission) checkHeld(gpu string) {
	a.t.Helper()
	a.pending("next", wish{1, 0})
	for range 4 {
		if chosen, why := a.ask(gpus, 0, 1); slices.Contains(chosen, gpu) {
			a.t.Errorf("the GPU of the newest container is chosen: %s", why)
		}
	}
	if holder := a.coordinator.holderOf(gpus, gpu); holder == "" {
		a.t.Error("nobody holds the GPU of the newest container")
	}
}

// A container that no question has followed runs: its pod is listed as started. The kubelet starts without
// its records, and shows the container without devices. The container keeps its device, for the next server
// too, and although the kubelet's own list lacks the pod at first.
func TestLostNewestContainer(t *testing.T) {
	t.Parallel()
	nothing := func(*admission) {}
	listedLater := func(between func(a *admission)) func(a *admission) {
		return func(a *admission) {
			all := slices.Clone(a.specs)
			a.specs = a.specs[:1] // not listed yet
			a.pending("small", wish{0, 1})
			a.ask(vfs, 1, 1)
			between(a)
			a.specs = append(all, a.specs[1:]...)
		}
	}
	for name, c := range map[string]struct {
		source intent.Source
		then   func(a *admission)
	}{
		"the same server": {intent.PodsAPI, nothing},
		"a takeover after the start of the kubelet": {intent.PodsAPI, (*admission).takeOver},
		"a takeover, and no List of the next kubelet": {intent.PodsAPI, func(a *admission) {
			a.takeOver()
			a.coordinator.MayList = false
		}},
		"listed later":                   {intent.Kubelet, listedLater(nothing)},
		"listed later, after a takeover": {intent.Kubelet, listedLater((*admission).takeOver)},
		"listed later, after no answer": {intent.Kubelet, listedLater(func(a *admission) {
			told := sourcesOf(a.coordinator).pods
			sourcesOf(a.coordinator).pods = func(context.Context) (intent.Answer, error) {
				return intent.Answer{}, errors.New("no answer")
			}
			a.ask(vfs, 1, 1)
			sourcesOf(a.coordinator).pods = told
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, gpu := lostNewest(t, c.source)
			c.then(a)
			a.checkHeld(gpu)
		})
	}
}
