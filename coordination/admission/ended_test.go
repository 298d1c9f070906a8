// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/scale"
)

// What pods have that have ended is free for people, though the kubelet has not needed it since.
func TestEndedPodsHaveNothing(t *testing.T) {
	t.Parallel()
	eachSource(t, everySource, func(t *testing.T, a *admission) {
		for _, name := range []string{"ends", "stays", "newest"} {
			a.mustAdmit(a.pending(name, wish{1, 1}).Pod, "c", wish{1, 1})
		}
		a.wantStatus(6, "")
		a.remove(a.order[0])
		a.wantStatus(4, "team/ends/c team/ends/c")
		a.away, a.source = true, "" // nobody tells
		a.wantStatus(6, "")
	})
}

// wantStatus checks how many devices are allocated by Status, and whose are free only for people.
func (a *admission) wantStatus(allocated int, ended string) {
	a.t.Helper()
	var owners []string
	for _, d := range devicesOf(a.coordinator.Status(a.t.Context()).GetResources()) {
		o := d.GetEnded()
		switch {
		case d.GetAllocated():
			allocated--
		case o != nil && d.GetOwner() == nil:
			owners = append(owners, o.GetNamespace()+"/"+o.GetPod()+"/"+o.GetContainer())
		}
	}
	if got := strings.Join(owners, " "); allocated != 0 || got != ended {
		a.t.Errorf("%d devices are missing among the allocated ones, ended are %q, want %q", allocated, got, ended)
	}
}

// Whose the newest devices are is known to those who read the metrics too, although nothing came after them;
// and that their container has ended.
func TestMetricsKnowTheNewest(t *testing.T) {
	t.Parallel()
	eachSource(t, certain, func(t *testing.T, a *admission) {
		a.mustAdmit(a.pending("first", wish{1, 1}).Pod, "c", wish{1, 1})
		pod := a.pending("apart", wish{1, 1}).Pod
		a.pods[pod]["c"] = kubelet.Devices{}
		farthest := a.free[vfs][len(a.free[vfs])-1]
		a.take(pod, gpus, []string{a.free[gpus][0].ID})
		a.take(pod, vfs, []string{farthest.ID})
		got := FindDegraded(a.coordinator.Resources())
		if len(got) != 1 || got[0].Owner.GetPod() != "apart" {
			t.Errorf("degraded are %v", got)
		}
		a.remove(pod)
		a.now = a.now.Add(surveyTTL)
		if got := FindDegraded(a.coordinator.Resources()); len(got) != 0 {
			t.Errorf("degraded are %v, which has ended", got)
		}
	})
}

// Those who read the metrics do not make the kubelet work.
func TestMetricsAskNowAndThen(t *testing.T) {
	t.Parallel()
	a := untold(t)
	for _, name := range []string{"one", "two"} {
		a.mustAdmit(a.pending(name, wish{1, 1}).Pod, "c", wish{1, 1})
	}
	asked := 0
	get := sourcesOf(a.coordinator).get
	sourcesOf(a.coordinator).get = func(ctx context.Context, pod kubelet.Pod) (kubelet.View, error) {
		asked++
		return get(ctx, pod)
	}
	for range 100 {
		a.coordinator.Resources()
	}
	if asked != 2 {
		t.Errorf("the kubelet was asked %d times about two pods", asked)
	}
}

// Of a container that lives the kubelet can offer a device that its checkpoint has with it by mistake. What
// else it has is not free, and nothing is planned with it.
func TestOfferedDeviceOfALivingPod(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	a.keepCheckpoint()
	lives := a.add("lives")
	a.admit(lives, "c", wish{0, 1})
	own := a.pods[lives]["c"][vfs][0]
	next := a.add("next")
	a.admit(next, "init", wish{1, 1})
	near, _ := a.split(a.all[gpus], a.address(vfs, own))
	mistaken := near[0].ID
	a.recordedPods[lives] = map[string]kubelet.Devices{"c": {vfs: {own}, gpus: {mistaken}}}
	a.record() // the kubelet has not written down that it is free
	must := a.pods[next]["init"][gpus]
	_, why := a.prefer(gpus, append(ids(a.free[gpus]), must...), must, 2)
	plan, now := a.coordinator.current().open.Plan, a.coordinator.current().books()
	if slices.Contains(plan.Devices[vfs], own) || now.isFree(vfs, own) {
		t.Errorf("VF %s counts as free, %v are planned: %s", own, plan.Devices[vfs], why)
	}
	if held := now.holders.Of(gpus, mistaken); held != nil {
		t.Errorf("GPU %s is still %s's", mistaken, ownerName(held))
	}
}

// A pod that had the device of a container without a record has ended: the container still has the device.
func TestStatusAfterADeviceOfTwoPods(t *testing.T) {
	t.Parallel()
	a := told(t)
	s := a.coordinator.current()
	id := s.resources[gpus].Ordered()[0].ID
	of := func(name string) holders.Holder {
		pod, devices := kubelet.Pod{Namespace: "team", Name: name}, kubelet.Devices{gpus: {id}}
		return holders.Holder{UID: name, Pod: pod, Name: "c", Devices: devices}
	}
	lost, later := of("lost"), of("later")
	lost.Lost = true
	known := survey{found: holders.Holders{later, lost}, ended: map[string]bool{podKeyOf(&later): true}}
	for _, d := range devicesOf(newStatus(s, a.coordinator.now(), known).GetResources()) {
		if d.GetDevice().GetId() == id && (!d.GetAllocated() || d.GetOwner().GetPod() != "lost") {
			t.Errorf("allocated: %t, to %v", d.GetAllocated(), d.GetOwner())
		}
	}
}

// What the kubelet offers of a pod that is gone tells that all that the pod had is free, also where
// PodResources does not answer: after the kubelet has started again the connection to it takes a moment.
func TestGonePodWithoutALook(t *testing.T) {
	for seed := range uint64(scale.Rounds(20)) {
		a := newAdmission(t, "oci-mi300x-derived", 4, seed%4 > 0, seed)
		a.keepCheckpoint()
		for _, name := range []string{"stays", "goes"} {
			a.mustAdmit(a.add(name), "worker", wish{2, 2})
		}
		a.remove(a.order[1])
		a.away = true
		a.mustAdmit(a.add("next"), "worker", wish{2, 2})
	}
}

// PodResources never shows an init container. What it got when nothing could be read is its own while the
// kubelet is not done with it.
func TestInitContainerAfterALateLook(t *testing.T) {
	for _, order := range bothOrders {
		a := untold(t)
		pod := a.add("pod")
		a.pods[pod]["init"], a.pods[pod]["c0"] = kubelet.Devices{}, kubelet.Devices{}
		a.away = true
		a.give(pod, "init", order[0], a.aligned(order[0], []int{0}), nil, 1)
		a.away = false
		_, why := a.ask(order[1], 0, 1)
		wantWords(t, why, " after ")
	}
}

// Once the pod of the newest Allocate is known to be gone nothing follows on it, nor on the Allocate before.
func TestNothingFollowsAPodThatIsGone(t *testing.T) {
	for range 20 { // maps have no order
		a := untold(t)
		for _, c := range []string{"c0", "c1"} { // PodResources is away for the second one, of the same name
			set := a.add("set-0")
			a.pods[set][c] = kubelet.Devices{}
			a.admit(set, c, wish{1, 0})
			a.remove(set)
			a.away = true
		}
		other := a.add("other")
		a.free[gpus] = a.aligned(gpus, []int{0})[2:] // the kubelet has no choice
		a.admit(other, "c0", wish{2, 0})
		a.remove(other)
		a.away = false
		a.freeAll()
		a.pods[a.add("set-0")]["c0"] = kubelet.Devices{}
		if _, why := a.ask(vfs, 0, 2); strings.Contains(why, takesOver) {
			t.Fatalf("a new pod's container is taken for that of another one: %s", why)
		}
	}
}

// A pod that ends while another is admitted is free for PodResources and not yet for the kubelet, which has
// settled the NUMA nodes with it: VFs that are asked for first go where GPUs were free before. The next pod
// gets what has become free.
func TestPodEndsDuringAnAdmission(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*admission){
		"owner known":     func(a *admission) { a.admit(a.add("look"), "worker", wish{1, 1}) },
		"owner not known": func(*admission) {},
	} {
		for seed := range uint64(8) { // both orders
			a := newAdmission(t, "oci-mi300x-derived", 4, true, seed)
			a.keepCheckpoint()
			ending := a.add("ending")
			a.admit(ending, "worker", wish{4, 4}) // the first socket
			prepare(a)
			look := sourcesOf(a.coordinator).look
			sourcesOf(a.coordinator).look = func(ctx context.Context) (kubelet.View, error) {
				view, err := look(ctx)
				delete(view.Containers, kubelet.Container{Pod: ending, Name: "worker"})
				view.Pods = slices.DeleteFunc(view.Pods, func(p kubelet.Pod) bool { return p == ending })
				return view, err
			}
			next := a.admit(a.add("next"), "worker", wish{2, 2})
			a.remove(ending)
			if !next || !a.admit(a.add("last"), "worker", wish{4, 4}) {
				t.Errorf("%s, seed %d: refused", name, seed)
			}
		}
	}
}
