// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// A kubelet with the fault of kubernetes PR 137534 gives a device out twice.
func TestDeviceOfAnotherPodIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		between func(a *admission, first kubelet.Pod)
		refused bool
	}{
		"it is held":      {func(*admission, kubelet.Pod) {}, true},
		"its pod is gone": {func(a *admission, first kubelet.Pod) { a.remove(first) }, false},
		"its pod is a namesake": {func(a *admission, first kubelet.Pod) { a.remove(first); a.add(first.Name) },
			false},
		"the kubelet is silent": {func(a *admission, _ kubelet.Pod) { a.away = true }, false},
		"the kubelet restarted": {func(a *admission, _ kubelet.Pod) {
			a.coordinator.current().open.Recorded = kubelet.Identity{}
		}, true},
		"no look came before it": {func(a *admission, _ kubelet.Pod) { a.forgetOwners() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
			first, seen := a.add("first"), a.observe()
			a.mustAdmit(first, "worker", wish{2, 2})
			taken := a.pods[first]["worker"][vfs]
			a.mustAdmit(a.add("other"), "worker", wish{1, 1}) // by its question PodResources shows the devices
			tc.between(a, first)
			before := a.coordinator.current().version
			order, refusal := a.allocated(vfs, taken[:1])
			want := "refuse nvidia.com/vf " + taken[0] + ": another pod has it"
			switch {
			case !tc.refused:
				if refusal != "" || len(order) != 1 {
					t.Errorf("answer %v, refusal %q", order, refusal)
				}
			case !strings.HasPrefix(refusal, want) || strings.Contains(refusal, "first") || order != nil:
				t.Errorf("answer %v, refusal %q, want %q", order, refusal, want)
			case a.coordinator.current().version != before:
				t.Error("what was refused counts as given")
			case seen.last.Refusal != refusal || seen.outcomes[RefusedDouble] != 1:
				t.Errorf("refusal %q was observed as %+v", refusal, seen.last)
			}
		})
	}
}

// The kubelet gives a device out again as soon as its pod has it, and asks nothing: the plan for that pod
// still stands.
func TestDeviceOfThePodBeforeIsRefused(t *testing.T) {
	for seed := range uint64(4) { // either half first
		a := newAdmission(t, "oci-mi300x-derived", 4, false, seed)
		first := a.add("first")
		a.mustAdmit(first, "worker", wish{2, 2})
		for name, ids := range a.pods[first]["worker"] {
			known := a.coordinator.holderOf(name, ids[0])
			if _, refusal := a.allocated(name, ids[:1]); refusal == "" && known == "team/first/worker" {
				t.Errorf("seed %d: %s %s is given out twice", seed, name, ids[0])
			}
		}
	}
}

// forgetOwners makes the coordinator know the pods alone, as before the first look after an admission.
func (a *admission) forgetOwners() {
	found := a.coordinator.current().found
	for i := range found {
		found[i].Name = ""
	}
}

// The kubelet offers a VF that a living pod has, and does not answer List this time: the VF is the last
// choice, keeps its owner, and is refused as Get confirms.
func TestDoubleWhileListFails(t *testing.T) {
	t.Parallel()
	for _, others := range []int{8, 2} { // free ones that are offered beside it, to a pod that wants four
		t.Run(fmt.Sprint(others, " others"), func(t *testing.T) {
			eachSource(t, []intent.Source{"", intent.PodsAPI}, func(t *testing.T, a *admission) {
				_, held := a.start("owner", vfs)
				a.start("second", gpus) // its question shows the owner
				a.pending("third", wish{0, 4})
				a.unlisted = true
				offered := append(slices.Clone(held), ids(a.aligned(vfs, []int{0}))[:others]...)
				chosen, _ := a.prefer(vfs, offered, nil, min(4, len(offered)))
				if in := slices.Contains(chosen, held[0]); in != (others < 4) {
					t.Errorf("chosen %v, with the one in use %t", chosen, in)
				}
				if got := a.coordinator.holderOf(vfs, held[0]); got != "team/owner/c" {
					t.Errorf("the VF is held by %q", got)
				}
				if _, refusal := a.allocated(vfs, chosen); (refusal != "") != (others < 4) {
					t.Errorf("refused %q", refusal)
				}
				if _, refusal := a.allocated(vfs, held); refusal == "" {
					t.Error("the kubelet gives the one in use out alone, and it is not refused")
				}
			})
		})
	}
}

// What a container had is free again when it is refused a device that another pod has.
func TestRefusedDoubleLeavesNothingHeld(t *testing.T) {
	t.Parallel()
	eachSource(t, []intent.Source{"", intent.PodsAPI}, func(t *testing.T, a *admission) {
		_, held := a.start("owner", vfs)
		a.serve(a.pending("fails", wish{1, 1}).Pod, gpus, 0, 1)
		if _, refusal := a.allocated(vfs, held); refusal == "" {
			t.Fatal("not refused")
		}
		if held, left := a.coordinator.heldOf(gpus), a.coordinator.current().allocates; len(held)+len(left) > 0 {
			t.Errorf("GPUs %v are held, and the Allocates %v remembered", held, left)
		}
	})
}

// TestDoubleOfAnUnaskedContainer: the kubelet allocates the GPU of a pod's second container without a
// question, loses sight of the GPU, offers the GPU to another pod, and does not answer List. No List shows
// the second container, and without a request source only the admission of the first container names the pod:
// the GPU keeps its owner, and is refused as Get confirms.
func TestDoubleOfAnUnaskedContainer(t *testing.T) {
	t.Parallel()
	a := untold(t)
	owner := a.pending("owner", wish{1, 1}).Pod
	for _, name := range []string{gpus, vfs} {
		a.serve(owner, name, 0, 1)
		a.now = a.now.Add(FollowWindow) // the next question needs a List, which names the container
	}
	a.keep(owner)
	unasked := a.free[gpus][:1]
	if _, refusal := a.allocated(gpus, ids(unasked)); refusal != "" {
		t.Fatal(refusal)
	}
	a.pods[owner]["d"] = kubelet.Devices{gpus: ids(unasked)}
	a.keep(owner)
	a.unlisted = true
	a.pending("other", wish{1, 0})
	offered := ids(unasked)
	if chosen, _ := a.prefer(gpus, offered, nil, 1); !slices.Equal(chosen, offered) {
		t.Fatalf("chosen %v", chosen)
	}
	if got := a.coordinator.holderOf(gpus, offered[0]); got != "team/owner/d" {
		t.Errorf("the GPU is held by %q", got)
	}
	if _, refusal := a.allocated(gpus, offered); refusal == "" {
		t.Error("the kubelet gives the GPU out twice, and the coordinator does not refuse")
	}
}
