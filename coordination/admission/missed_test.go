// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// The coordinator has not heard of the first half of a container: another server did, or the plugin answered
// alone. PodResources shows it with the container when the second half is asked for.
func TestMissedAllocate(t *testing.T) {
	t.Parallel()
	for _, alignment := range []intent.Alignment{intent.Preferred, intent.Required} {
		for nth := range 3 {
			t.Run(fmt.Sprintf("%s, GPU %d", alignment, nth), func(t *testing.T) {
				eachSource(t, everySource, func(t *testing.T, a *admission) {
					a.coordinator.Alignment = alignment
					a.mustAdmit(a.pending("before", wish{1, 1}).Pod, "c", wish{1, 1})
					pod := a.pending("pod", wish{1, 1}).Pod
					gpu := a.aligned(gpus, []int{0})[nth].ID
					a.miss(pod, gpu)
					chosen, why := a.ask(vfs, 0, 1)
					if a.coordinator.holderOf(gpus, gpu) == "" {
						t.Errorf("GPU %s is nobody's: %s", gpu, why)
					}
					if refusal := a.take(pod, vfs, chosen); refusal != "" {
						t.Errorf("refused: %s", refusal)
					}
					if got := a.levels(a.pods[pod]["c"]); got[0]+got[1] != 1 {
						t.Errorf("pair %v: %s", got, why)
					}
				})
			})
		}
	}
}

// miss is an Allocate of a GPU that the coordinator does not hear of, long ago.
func (a *admission) miss(pod kubelet.Pod, gpu string) {
	a.pods[pod]["c"] = kubelet.Devices{gpus: {gpu}}
	a.free[gpus] = slices.DeleteFunc(a.free[gpus], func(d device.Device) bool { return d.ID == gpu })
	a.now = a.now.Add(100 * FollowWindow)
}

// A pod whose first half was not heard of is refused where it requires alignment and cannot have it.
func TestMissedAllocateIsEnforced(t *testing.T) {
	t.Parallel()
	eachSource(t, []intent.Source{"", intent.PodsAPI}, func(t *testing.T, a *admission) {
		a.coordinator.Alignment = intent.Required
		greedy := a.pending("greedy", wish{0, 4}).Pod
		gpu := a.aligned(gpus, []int{0})[0]
		near, _ := a.split(a.aligned(vfs, []int{0}), gpu.Address)
		a.take(greedy, vfs, ids(near))
		a.keep(greedy)
		pod := a.pending("pod", wish{1, 1}).Pod
		a.miss(pod, gpu.ID)
		chosen, _ := a.ask(vfs, 0, 1)
		wantWords(t, a.take(pod, vfs, chosen), "0 of 1 pairs")
	})
}

// What an init container was given and no other container took over is its pod's for its life, though
// PodResources never shows it.
func TestLeftOverOfAnInitContainer(t *testing.T) {
	t.Parallel()
	eachSource(t, everySource, func(t *testing.T, a *admission) {
		pod := a.add("check")
		a.tell(pod, container{"init", wish{2, 0}}, container{"c", wish{0, 1}})
		a.pods[pod]["c"] = kubelet.Devices{}
		chosen, _ := a.serve(pod, gpus, 0, 2)
		a.pods[pod] = map[string]kubelet.Devices{"init": a.pods[pod]["c"], "c": {}}
		a.recordedPods[pod] = map[string]kubelet.Devices{"init": a.pods[pod]["init"]}
		a.record()
		a.serve(pod, vfs, 0, 1)
		a.keep(pod)
		for i := range 3 {
			next := a.pending(fmt.Sprint("next-", i), wish{1, 1}).Pod
			a.now = a.now.Add(100 * FollowWindow)
			a.ask(gpus, 1, 1)
			for _, id := range chosen {
				if a.coordinator.current().books().isFree(gpus, id) {
					t.Errorf("GPU %s of the init container is free when %s asks", id, next.Name)
				}
			}
			a.mustAdmit(next, "c", wish{1, 1})
		}
	})
}

// Nobody tells what pods want. The kubelet gives a container GPUs without a question and fails its pod; the
// next one wants a VF alone. That the GPUs are its own is a guess, for which nobody is refused.
func TestNobodyIsRefusedOnAGuess(t *testing.T) {
	t.Parallel()
	for _, unlisted := range []bool{false, true} {
		a := told(t)
		a.coordinator.Alignment = intent.Required
		a.admit(a.pending("before", wish{1, 0}).Pod, "c", wish{1, 0})
		a.source, a.unlisted = "", unlisted
		failed := a.pending("failed", wish{2, 4})
		a.take(failed.Pod, gpus, ids(a.aligned(gpus, []int{0}))[:2])
		a.remove(failed.Pod) // no VF is left for it
		next := a.pending("next", wish{0, 1})
		a.now = a.now.Add(10 * FollowWindow)
		a.serve(next.Pod, vfs, 0, 1)
	}
}

// Without a source, what the kubelet gives without a question long after the first half can be another
// container's: the kubelet may have rejected the pod for lack of GPUs. Directly after the first half it is
// the second one, and required alignment is enforced.
func TestLateAllocateWithoutAQuestionIsAGuess(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{true, false} {
		a := untold(t)
		a.coordinator.Alignment = intent.Required
		failed := a.pending("failed", wish{2, 1}).Pod
		first, why := a.serve(failed, vfs, 0, 1)
		_, far := a.split(a.aligned(gpus, []int{0}), a.address(vfs, first[0]))
		next := failed
		if late {
			a.remove(failed)
			next = a.pending("next", wish{1, 0}).Pod
			a.now = a.now.Add(10 * FollowWindow)
			a.away = true
		}
		if refusal := a.take(next, gpus, ids(far)[:1]); (refusal == "") != late {
			t.Errorf("late %t: refusal %q\n%s", late, refusal, why)
		}
	}
}

// The kubelet offers a GPU of the pod that it has just admitted (kubernetes PR 137534), and List fails: whose
// the GPU is PodResources has not shown yet, but tells when it is asked about that pod, or the kubelet's list
// of pods tells that it lives. The VF of that pod is not free, and nothing is planned with it.
func TestOfferedDeviceOfTheNewestPod(t *testing.T) {
	t.Parallel()
	for _, source := range everySource {
		a := newAdmission(t, "oci-mi300x-derived", 1, true, 1)
		a.source = source
		a.keepCheckpoint()
		newest := a.pending("newest", wish{1, 1}).Pod
		a.mustAdmit(newest, "c", wish{1, 1})
		gpu, vf := a.pods[newest]["c"][gpus][0], a.pods[newest]["c"][vfs][0]
		a.unlisted = true
		a.pending("next", wish{1, 1})
		a.now = a.now.Add(100 * FollowWindow)
		offered := append(ids(a.aligned(gpus, []int{0})), gpu)
		chosen, why := a.prefer(gpus, offered, nil, 1)
		s := a.coordinator.current()
		if slices.Contains(chosen, gpu) || slices.Contains(s.open.Plan.Devices[vfs], vf) ||
			s.books().isFree(vfs, vf) {
			t.Errorf("source %q: %v chosen and %v planned beside %s, which has %s and %s: %s", source, chosen,
				s.open.Plan.Devices, newest.Name, gpu, vf, why)
		}
	}
}
