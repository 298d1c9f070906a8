// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// The kubelet has two pods of one name in its checkpoint: the earlier one has ended, the kubelet has started
// since and has not freed its devices yet, and the later one runs with GPUs alone. For people the earlier one
// has ended, and the next question is no second half of the later one.
func TestEarlierNamesakeHasEnded(t *testing.T) {
	t.Parallel()
	for early, late := range map[string]string{"uid-a": "uid-z", "uid-z": "uid-a"} {
		t.Run("earlier "+early, func(t *testing.T) {
			eachSource(t, everySource, func(t *testing.T, a *admission) {
				start := func(name, uid string, halves ...string) kubelet.Pod {
					pod := a.come(name, uid, wish{1, len(halves) - 1}).Pod
					for _, resource := range halves {
						a.serve(pod, resource, 0, 1)
					}
					a.run(pod)
					a.now = a.now.Add(time.Minute)
					return pod
				}
				name := start("train-0", early, gpus, vfs)
				start("small", "uid-small", gpus)                      // a look shows the owners
				ghost := kubelet.Pod{Namespace: "gone", Name: "ghost"} // in the checkpoint alone, by its UID
				a.uids[ghost], a.recordedPods[ghost] = early, a.pods[name]
				a.pods[name] = map[string]kubelet.Devices{} // the kubelet keeps the devices
				a.remove(name)
				start("train-0", late, gpus)
				for _, d := range devicesOf(a.coordinator.Status(t.Context()).GetResources()) {
					if o := d.GetOwner(); o.GetPod() == "train-0" && o.GetUid() != late {
						t.Errorf("%s is held by %v", d.GetDevice().GetId(), o)
					}
				}
				next, seen := a.come("next", "uid-next", wish{1, 1}).Pod, a.observe()
				_, why := a.serve(next, vfs, 0, 1)
				a.serve(next, gpus, 0, 1)
				a.wantPairs(next, 1, why)
				if seen.last.Outcome != Aligned || strings.Contains(why, "train-0") || strings.Contains(why, " after ") {
					t.Errorf("%v: %s", seen.last.Outcome, why)
				}
			})
		})
	}
}

// A static pod whose manifest goes and comes back has the same UID. The kubelet has freed its devices, at a
// List of anybody, without writing its checkpoint, and gives it others: it is the pod that asks.
func TestStaticPodComesBack(t *testing.T) {
	t.Parallel()
	eachOrder(t, everySource, func(t *testing.T, a *admission, order []string) {
		pod := a.come("static-0", "hash", wish{1, 1}).Pod
		for _, name := range order {
			a.serve(pod, name, 0, 1)
		}
		a.run(pod)
		a.start("small", gpus) // a look shows the owners
		a.now = a.now.Add(time.Hour)
		a.remove(pod) // and no checkpoint
		a.come("static-0", "hash", wish{1, 1})
		seen := a.observe()
		_, first := a.serve(pod, order[0], 0, 1)
		_, second := a.serve(pod, order[1], 0, 1)
		a.wantPairs(pod, 1, first, second)
		if seen.last.Outcome != Aligned || a.source != "" && !strings.Contains(first, "static-0/c wants") {
			t.Errorf("%v: %s", seen.last.Outcome, first)
		}
	})
}

// The kubelet rejects a pod amid its container, for the device of another vendor's plugin, and a later pod of
// the name comes: its first question is no second half.
func TestRejectedAndCreatedAgain(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]bool{"PodResources answers": false, "PodResources is away": true} {
		t.Run(name, func(t *testing.T) {
			eachOrder(t, everySource, func(t *testing.T, a *admission, order []string) {
				a.away = away
				pod := a.come("train-0", "uid-1", wish{2, 2}).Pod
				a.serve(pod, order[0], 0, 2)
				a.remove(pod)
				a.now = a.now.Add(10 * time.Second)
				a.away = false
				a.come("train-0", "uid-2", wish{2, 2})
				seen := a.observe()
				_, first := a.serve(pod, order[1], 0, 2)
				_, second := a.serve(pod, order[0], 0, 2)
				a.wantPairs(pod, 2, first, second)
				if seen.last.Outcome != Aligned || strings.Contains(first, " after ") {
					t.Errorf("%v: %s", seen.last.Outcome, first)
				}
			})
		})
	}
}

// Without a request source List has just shown, at the question, that the holder under the name before has
// ended. The kubelet writes its checkpoint only after the Allocate: a refusal would repeat forever.
func TestEndedUnderTheNameBefore(t *testing.T) {
	for _, again := range []bool{false, true} {
		a, owner, held := heldBeforeRename(t)
		a.source = ""
		a.remove(owner) // and no checkpoint
		if again {      // a pod of the same name
			a.remove(kubelet.Pod{Namespace: "team", Name: "next"})
			a.pods[a.add("owner")]["c"] = kubelet.Devices{}
		}
		a.free[anew] = slices.DeleteFunc(a.free[anew], func(d device.Device) bool { return d.ID != held[0] })
		for range 3 {
			ids, _ := a.ask(anew, 0, 1)
			if _, refusal := a.allocated(anew, ids); refusal != "" {
				t.Errorf("created again %t: its pod has ended: %s", again, refusal)
			}
		}
	}
}

// The devices that a static pod had before are free, and the only ones on one switch: the pod requires that,
// and is not refused.
func TestStaticPodIsNotRefused(t *testing.T) {
	t.Parallel()
	eachOrder(t, certain, func(t *testing.T, a *admission, order []string) {
		come := func() kubelet.Pod {
			spec := a.come("static-0", "hash", wish{1, 1})
			spec.Alignment = intent.Required
			return spec.Pod
		}
		pod := come()
		for _, name := range order {
			a.serve(pod, name, 0, 1)
		}
		a.run(pod)
		_, far := a.split(a.aligned(vfs, []int{0}), a.address(gpus, a.pods[pod]["c"][gpus][0]))
		greedy := a.pending("greedy", wish{0, len(far)}).Pod
		a.take(greedy, vfs, ids(far))
		a.run(greedy)
		a.now = a.now.Add(time.Hour)
		a.remove(pod) // and no checkpoint
		come()
		for _, name := range order {
			a.serve(pod, name, 0, 1)
		}
		a.wantPairs(pod, 1)
	})
}

// endedNamesake returns an admission in which a pod with an init container has had a GPU and a VF, and has
// ended since the kubelet's checkpoint. A question has shown the name.
func endedNamesake(
	t *testing.T, source intent.Source, excludeTopology bool, order []string,
) (a *admission, name kubelet.Pod) {
	t.Helper()
	a = newAdmission(t, "oci-mi300x-derived", 1, excludeTopology, 1)
	a.source = source
	a.keepCheckpoint()
	name = kubelet.Pod{Namespace: "team", Name: "train-0"}
	a.pending(name.Name, wish{1, 1})
	for _, resource := range order {
		a.serve(name, resource, 0, 1)
	}
	early := a.pods[name]["c"]
	a.recordedPods[name] = map[string]kubelet.Devices{"init": early, "c": early} // c has taken over
	a.record()
	a.pending("small", wish{0, 1})
	a.prefer(vfs, ids(a.free[vfs]), nil, 1) // a look shows the names
	a.remove(kubelet.Pod{Namespace: "team", Name: "small"})
	a.remove(name) // and no checkpoint
	return a, name
}

// eachNamesake runs a test for every request source, with and without a takeover.
func eachNamesake(t *testing.T, run func(t *testing.T, source intent.Source, crash func(*admission))) {
	for _, source := range everySource {
		for takeover, crash := range map[bool]func(*admission){
			true: (*admission).takeOver, false: func(*admission) {},
		} {
			t.Run(fmt.Sprintf("source %q, takeover %t", source, takeover), func(t *testing.T) {
				t.Parallel()
				run(t, source, crash)
			})
		}
	}
}

// A later pod of the name gets the same VF as the answer to a question, which proves the end of the earlier
// pod: its GPUs are free. A takeover between question and Allocate changes nothing.
func TestNamesakeAfterATakeoverAmidAQuestion(t *testing.T) {
	t.Parallel()
	eachNamesake(t, func(t *testing.T, source intent.Source, crash func(*admission)) {
		a, name := endedNamesake(t, source, false, []string{vfs, gpus})
		a.pending(name.Name, wish{1, 1})
		a.pods[name]["c"] = kubelet.Devices{}
		chosen, _ := a.ask(vfs, 0, 1)
		crash(a)
		a.take(name, vfs, chosen)
		_, why := a.serve(name, gpus, 0, 1)
		a.wantPairs(name, 1, why)
	})
}

// A later pod of the name gets all free GPUs of a NUMA node without a question, that of the earlier pod among
// them. The VF of the earlier pod is free, and is chosen beside its GPU.
func TestNamesakeHasGPUOfTheEarlierPod(t *testing.T) {
	t.Parallel()
	eachNamesake(t, func(t *testing.T, source intent.Source, crash func(*admission)) {
		a, name := endedNamesake(t, source, true, []string{gpus, vfs})
		a.pending(name.Name, wish{4, 4})
		a.pods[name]["c"] = kubelet.Devices{}
		a.take(name, gpus, ids(a.aligned(gpus, []int{0})))
		crash(a)
		chosen, why := a.prefer(vfs, ids(a.free[vfs]), nil, 4)
		a.take(name, vfs, chosen)
		a.wantPairs(name, 4, why)
	})
}
