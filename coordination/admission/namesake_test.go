// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// twice is a node where the kubelet has two pods of one name in its checkpoint: the earlier one has ended,
// the kubelet has started since and has not freed its devices yet, and the later one runs with GPUs alone.
func twice(t *testing.T, source intent.Source, early, late string) (a *admission, name kubelet.Pod) {
	t.Helper()
	a = told(t)
	a.source = source
	spec := a.pending("train-0", wish{1, 1})
	name = spec.Pod
	spec.UID, a.uids[name] = early, early
	admitOn := func(pod kubelet.Pod, node int, w wish) {
		a.pods[pod]["c"] = kubelet.Devices{}
		if w.gpus > 0 {
			ids, _ := a.ask(gpus, node, w.gpus)
			a.take(pod, gpus, ids)
		}
		if w.vfs > 0 {
			ids, _ := a.ask(vfs, node, w.vfs)
			a.take(pod, vfs, ids)
		}
		a.recordedPods[pod] = a.pods[pod]
		a.record()
		for i := range a.specs {
			a.specs[i].Started = a.specs[i].Started || a.specs[i].Pod == pod
		}
		a.now = a.now.Add(time.Minute)
	}
	admitOn(name, 0, wish{1, 1})
	admitOn(a.pending("small", wish{1, 0}).Pod, 0, wish{1, 0}) // a look shows the owners
	ghost := kubelet.Pod{Namespace: "gone", Name: "ghost"}     // in the checkpoint alone, by its UID
	a.uids[ghost], a.recordedPods[ghost] = early, a.pods[name]
	a.pods[name] = map[string]kubelet.Devices{} // the kubelet keeps the devices
	a.remove(name)
	again := a.pending("train-0", wish{1, 0})
	again.UID, a.uids[name] = late, late
	admitOn(name, 0, wish{1, 0})
	return a, name
}

// The later pod of a name runs: the next question is no second half of it.
func TestRunningNamesakeDoesNotAsk(t *testing.T) {
	for early, late := range map[string]string{"uid-a": "uid-z", "uid-z": "uid-a"} {
		for _, source := range []intent.Source{"", intent.Kubelet, intent.PodsAPI} {
			a, _ := twice(t, source, early, late)
			next := a.pending("next", wish{1, 1})
			a.pods[next.Pod]["c"] = kubelet.Devices{}
			seen := newTallied()
			a.coordinator.Observer = seen.observe
			ids, why := a.ask(vfs, 0, 1)
			a.take(next.Pod, vfs, ids)
			own, _ := a.ask(gpus, 0, 1)
			a.take(next.Pod, gpus, own)
			if l := a.levels(a.pods[next.Pod]["c"]); seen.last.Outcome != Aligned || l != (levels{0: 1}) {
				t.Errorf("source %q, the earlier pod %s: %v is %v, pairs %v", source, early,
					a.pods[next.Pod]["c"], seen.last.Outcome, l)
			}
			if strings.Contains(why, "train-0") || strings.Contains(why, " after ") {
				t.Errorf("source %q, the earlier pod %s: %s", source, early, why)
			}
		}
	}
}

// For people the earlier pod of a name has ended as soon as the later one runs.
func TestEarlierNamesakeHasEnded(t *testing.T) {
	for early, late := range map[string]string{"uid-a": "uid-z", "uid-z": "uid-a"} {
		for _, source := range []intent.Source{"", intent.Kubelet, intent.PodsAPI} {
			a, _ := twice(t, source, early, late)
			for _, r := range a.coordinator.Status(t.Context()).GetResources() {
				for _, d := range r.GetDevices() {
					if o := d.GetOwner(); o.GetPod() == "train-0" && o.GetUid() != late {
						t.Errorf("source %q, the earlier pod %s: %s is held by %v",
							source, early, d.GetDevice().GetId(), o)
					}
				}
			}
		}
	}
}

// A static pod whose manifest goes and comes back has the same UID. The kubelet has freed its devices, at a
// List of anybody, without writing its checkpoint, and gives it others: it is the pod that asks.
func TestStaticPodComesBack(t *testing.T) {
	for _, source := range []intent.Source{"", intent.Kubelet, intent.PodsAPI} {
		for _, order := range [][]string{{gpus, vfs}, {vfs, gpus}} {
			a := told(t)
			a.source = source
			come := func() kubelet.Pod {
				spec := a.pending("static-0", wish{1, 1})
				spec.UID, a.uids[spec.Pod] = "hash", "hash"
				a.pods[spec.Pod]["c"] = kubelet.Devices{}
				return spec.Pod
			}
			half := func(pod kubelet.Pod, name string) string {
				ids, why := a.ask(name, 0, 1)
				if refusal := a.take(pod, name, ids); refusal != "" {
					t.Errorf("source %q: %s", source, refusal)
				}
				return why
			}
			pod := come()
			half(pod, order[0])
			half(pod, order[1])
			a.recordedPods[pod] = a.pods[pod]
			a.record()
			a.specs[0].Started = true
			half(a.pending("small", wish{1, 0}).Pod, gpus) // a look shows the owners
			small := kubelet.Pod{Namespace: "team", Name: "small"}
			a.recordedPods[small] = a.pods[small]
			a.record()
			a.now = a.now.Add(time.Hour)
			a.remove(pod) // and no checkpoint
			pod = come()
			seen := newTallied()
			a.coordinator.Observer = seen.observe
			first := half(pod, order[0])
			second := half(pod, order[1])
			if l := a.levels(a.pods[pod]["c"]); seen.last.Outcome != Aligned || l != (levels{0: 1}) {
				t.Errorf("source %q, order %v: %v is %v, pairs %v\n%s\n%s", source, order,
					a.pods[pod]["c"], seen.last.Outcome, l, first, second)
			}
			if source != "" && !strings.Contains(first, "static-0/c wants") {
				t.Errorf("source %q, order %v: %s", source, order, first)
			}
		}
	}
}

// Pods of few names come and go; the kubelet keeps some ended ones for a while, as after its start.
func TestRandomNamesakes(t *testing.T) {
	for _, source := range []intent.Source{intent.PodsAPI, ""} {
		for seed := range uint64(60) {
			a := newAdmission(t, "oci-mi300x-derived", 4, false, seed)
			a.source = source
			a.keepCheckpoint()
			var ghosts []kubelet.Pod
			life := 0
			a.restarts(func() string { return fmt.Sprint(life) })
			mix := []wish{{1, 1}, {2, 2}, {1, 0}, {0, 1}, {0, 2}}
			if source != "" {
				mix = append(mix, wish{2, 1}, wish{1, 2})
			}
			for step := range 60 {
				switch r := a.random.IntN(10); {
				case len(ghosts) == 0 && len(a.order) > 0 && r < 2: // the kubelet starts; pods have ended meanwhile
					life++
					for _, pod := range slices.Clone(a.order) {
						if d := a.pods[pod]["c0"]; len(d[gpus]) == 0 || len(d[vfs]) == 0 || a.random.IntN(2) == 0 {
							continue
						}
						ghost := kubelet.Pod{Namespace: "ghost", Name: fmt.Sprint(pod.Name, step)}
						a.uids[ghost], a.recordedPods[ghost] = a.uids[pod], a.recordedPods[pod]
						a.pods[ghost] = a.pods[pod]
						delete(a.pods, pod)
						a.remove(pod)
						ghosts = append(ghosts, ghost)
					}
				case len(ghosts) == 0 && len(a.order) > 0 && r < 5:
					a.remove(a.order[a.random.IntN(len(a.order))])
				case len(ghosts) > 0 && r < 3: // the kubelet's sources are ready
					for _, ghost := range ghosts {
						a.remove(ghost)
					}
					ghosts = nil
				default:
					name := fmt.Sprintf("pod-%d", a.random.IntN(3))
					pod := kubelet.Pod{Namespace: "team", Name: name}
					if a.pods[pod] != nil {
						continue
					}
					a.add(name)
					a.uids[pod] = fmt.Sprintf("uid-%d-%d", a.random.IntN(1000), a.created)
					w := mix[a.random.IntN(len(mix))]
					a.pods[pod]["c0"] = kubelet.Devices{}
					a.tell(pod, container{"c0", w})
					a.named = nil
					if !a.admit(pod, "c0", w) {
						a.remove(pod)
					}
					for _, named := range a.named {
						if named != nil && (kubelet.Pod{Namespace: named.GetNamespace(), Name: named.GetPod()}) != pod {
							t.Errorf("an Allocate of %v is said to be of %v", pod, named)
						}
					}
				}
				if t.Failed() {
					t.Fatalf("source %q, seed %d, step %d", source, seed, step)
				}
			}
		}
	}
}

// The kubelet rejects a pod amid its container, for the device of another vendor's plugin, and a later pod of
// the name comes: its first question is no second half.
func TestRejectedAndCreatedAgain(t *testing.T) {
	for _, source := range []intent.Source{"", intent.Kubelet, intent.PodsAPI} {
		for _, order := range [][]string{{gpus, vfs}, {vfs, gpus}} {
			for _, looked := range []bool{true, false} {
				a := told(t)
				a.source = source
				come := func(uid string) kubelet.Pod {
					spec := a.pending("train-0", wish{2, 2})
					spec.UID, a.uids[spec.Pod] = uid, uid
					a.pods[spec.Pod]["c"] = kubelet.Devices{}
					return spec.Pod
				}
				a.away = !looked
				pod := come("uid-1")
				ids, _ := a.ask(order[0], 0, 2)
				a.take(pod, order[0], ids)
				a.remove(pod)
				a.now = a.now.Add(10 * time.Second)
				a.away = false
				pod = come("uid-2")
				seen := newTallied()
				a.coordinator.Observer = seen.observe
				first, why := a.ask(order[1], 0, 2)
				a.take(pod, order[1], first)
				if strings.Contains(why, " after ") {
					t.Errorf("source %q, order %v, looked %t: %s", source, order, looked, why)
				}
				second, why := a.ask(order[0], 0, 2)
				a.take(pod, order[0], second)
				if l := a.levels(a.pods[pod]["c"]); seen.last.Outcome != Aligned || l != (levels{0: 2}) {
					t.Errorf("source %q, order %v, looked %t: %v is %v, pairs %v\n%s", source, order, looked,
						a.pods[pod]["c"], seen.last.Outcome, l, why)
				}
			}
		}
	}
}

// restarts makes each answer of PodResources that of the kubelet that runs.
func (a *admission) restarts(life func() string) {
	read := sourcesOf(a.coordinator)
	look, get := read.look, read.get
	of := func(view kubelet.View, err error) (kubelet.View, error) {
		view.Life = life()
		return view, err
	}
	read.life = life
	read.look = func(ctx context.Context) (kubelet.View, error) { return of(look(ctx)) }
	read.get = func(ctx context.Context, pod kubelet.Pod) (kubelet.View, error) { return of(get(ctx, pod)) }
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
	for _, source := range []intent.Source{intent.Kubelet, intent.PodsAPI} {
		for _, order := range [][]string{{gpus, vfs}, {vfs, gpus}} {
			a := told(t)
			a.source = source
			come := func() kubelet.Pod {
				spec := a.pending("static-0", wish{1, 1})
				spec.UID, a.uids[spec.Pod], spec.Alignment = "hash", "hash", intent.Required
				a.pods[spec.Pod]["c"] = kubelet.Devices{}
				return spec.Pod
			}
			record := func(pod kubelet.Pod) {
				a.recordedPods[pod] = a.pods[pod]
				a.record()
				for i := range a.specs {
					a.specs[i].Started = true
				}
			}
			pod := come()
			for _, name := range order {
				ids, _ := a.ask(name, 0, 1)
				a.take(pod, name, ids)
			}
			record(pod)
			own := a.address(gpus, a.pods[pod]["c"][gpus][0])
			tree := a.coordinator.current().tree
			far := ids(slices.DeleteFunc(a.aligned(vfs, []int{0}), func(d device.Device) bool {
				return tree.Distance(own, d.Address).Level.Direct()
			}))
			greedy := a.pending("greedy", wish{0, len(far)}).Pod
			a.take(greedy, vfs, far)
			record(greedy)
			a.now = a.now.Add(time.Hour)
			a.remove(pod) // and no checkpoint
			pod = come()
			for _, name := range order {
				ids, why := a.ask(name, 0, 1)
				if refusal := a.take(pod, name, ids); refusal != "" {
					t.Errorf("source %q, order %v: %s\n%s", source, order, refusal, why)
					break
				}
			}
			if l := a.levels(a.pods[pod]["c"]); l != (levels{0: 1}) {
				t.Errorf("source %q, order %v: %v, pairs %v", source, order, a.pods[pod]["c"], l)
			}
		}
	}
}

// endedNamesake returns an admission in which a pod with an init container has had a GPU and a VF, and has
// ended since the kubelet's checkpoint. A question has shown the name.
func endedNamesake(
	t *testing.T, source intent.Source, excludeTopology bool, order []string,
) (a *admission, name kubelet.Pod, early kubelet.Devices) {
	t.Helper()
	a = newAdmission(t, "oci-mi300x-derived", 1, excludeTopology, 1)
	a.source = source
	a.keepCheckpoint()
	name = kubelet.Pod{Namespace: "team", Name: "train-0"}
	a.pending(name.Name, wish{1, 1})
	for _, resource := range order {
		chosen, _ := a.ask(resource, 0, 1)
		a.take(name, resource, chosen)
	}
	early = a.pods[name]["c"]
	a.recordedPods[name] = map[string]kubelet.Devices{"init": early, "c": early} // c has taken over
	a.record()
	a.pending("small", wish{0, 1})
	a.prefer(vfs, ids(a.free[vfs]), nil, 1) // a look shows the names
	a.remove(kubelet.Pod{Namespace: "team", Name: "small"})
	a.remove(name) // and no checkpoint
	return a, name, early
}

// eachNamesake runs a test for every request source, with and without a takeover.
func eachNamesake(t *testing.T, run func(t *testing.T, source intent.Source, crash func(*admission))) {
	for _, source := range []intent.Source{"", intent.Kubelet, intent.PodsAPI} {
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
		a, name, early := endedNamesake(t, source, false, []string{vfs, gpus})
		a.pending(name.Name, wish{1, 1})
		a.pods[name]["c"] = kubelet.Devices{}
		chosen, _ := a.ask(vfs, 0, 1)
		crash(a)
		a.take(name, vfs, chosen)
		gpu, why := a.ask(gpus, 0, 1)
		a.take(name, gpus, gpu)
		if l := a.levels(a.pods[name]["c"]); l != (levels{0: 1}) {
			t.Errorf("%v of %v, earlier %v\n%s", l, a.pods[name]["c"], early, why)
		}
	})
}

// A later pod of the name gets all free GPUs of a NUMA node without a question, that of the earlier pod among
// them. The VF of the earlier pod is free, and is chosen beside its GPU.
func TestNamesakeHasGPUOfTheEarlierPod(t *testing.T) {
	t.Parallel()
	eachNamesake(t, func(t *testing.T, source intent.Source, crash func(*admission)) {
		a, name, early := endedNamesake(t, source, true, []string{gpus, vfs})
		a.pending(name.Name, wish{4, 4})
		a.pods[name]["c"] = kubelet.Devices{}
		a.take(name, gpus, ids(a.aligned(gpus, []int{0})))
		crash(a)
		chosen, why := a.prefer(vfs, ids(a.free[vfs]), nil, 4)
		a.take(name, vfs, chosen)
		if l := a.levels(a.pods[name]["c"]); l != (levels{0: 4}) {
			t.Errorf("%v of %v, earlier %v\n%s", l, a.pods[name]["c"], early, why)
		}
	})
}
