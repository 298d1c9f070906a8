// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// What the kubelet offers of a pod that is gone tells that all that the pod had is free, also where
// PodResources does not answer: after the kubelet has started again the connection to it takes a moment.
func TestGonePodWithoutALook(t *testing.T) {
	for seed := range uint64(20) {
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
