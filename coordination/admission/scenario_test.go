// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// The sources of requests, "" for none; those whose lists say who asks; and the orders in which the kubelet
// asks for a container's halves.
var (
	everySource = []intent.Source{"", intent.PodsAPI, intent.Kubelet}
	certain     = []intent.Source{intent.PodsAPI, intent.Kubelet}
	bothOrders  = [][]string{{gpus, vfs}, {vfs, gpus}}
)

// untold is an admission with a checkpoint, on two NUMA nodes of four switches with a GPU and four VFs each.
func untold(t *testing.T) *admission {
	t.Helper()
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	a.keepCheckpoint()
	return a
}

// told is an admission of which a source of requests tells.
func told(t *testing.T) *admission {
	t.Helper()
	a := untold(t)
	a.source = intent.PodsAPI
	return a
}

// eachSource runs a test with an admission of each source of requests.
func eachSource(t *testing.T, sources []intent.Source, run func(t *testing.T, a *admission)) {
	t.Helper()
	for _, source := range sources {
		t.Run(fmt.Sprintf("source %q", source), func(t *testing.T) {
			t.Parallel()
			a := told(t)
			a.source = source
			run(t, a)
		})
	}
}

// eachOrder runs a test with an admission of each source of requests, and in each order of the halves.
func eachOrder(t *testing.T, sources []intent.Source, run func(t *testing.T, a *admission, order []string)) {
	t.Helper()
	for _, order := range bothOrders {
		t.Run(strings.Join(order, ", "), func(t *testing.T) {
			eachSource(t, sources, func(t *testing.T, a *admission) { run(t, a, order) })
		})
	}
}

// pending makes a pod of one container known to kubelet and source.
func (a *admission) pending(name string, w wish) *intent.Pod {
	a.tell(a.add(name), container{"c", w})
	return &a.specs[len(a.specs)-1]
}

// come makes a pod with a UID known to kubelet and source, which List shows without devices.
func (a *admission) come(name, uid string, w wish) *intent.Pod {
	spec := a.pending(name, w)
	spec.UID, a.uids[spec.Pod] = uid, uid
	a.pods[spec.Pod]["c"] = kubelet.Devices{}
	return spec
}

// ask is a question for devices of a resource on one NUMA node.
func (a *admission) ask(name string, node, size int) ([]string, string) {
	a.t.Helper()
	return a.prefer(name, ids(a.aligned(name, []int{node})), nil, size)
}

// prefer is a question for some of the available devices.
func (a *admission) prefer(name string, available, must []string, size int) (chosen []string, why string) {
	a.t.Helper()
	chosen, why, err := a.coordinator.Prefer(a.t.Context(), &api.PreferRequest{
		Resource: name, Available: available, MustInclude: must, Size: uint32(size),
	})
	if err != nil || len(chosen) != size {
		a.t.Fatalf("prefer %d %s of %v: %v, %v", size, name, available, chosen, err)
	}
	return chosen, why
}

// serve is a question for devices of a NUMA node, and the Allocate of the answer, which is not refused.
func (a *admission) serve(pod kubelet.Pod, name string, node, size int) (chosen []string, why string) {
	a.t.Helper()
	chosen, why = a.ask(name, node, size)
	if refusal := a.take(pod, name, chosen); refusal != "" {
		a.t.Errorf("%s\n%s", refusal, why)
	}
	return chosen, why
}

// split returns the devices on one switch with an address, and the others.
func (a *admission) split(devices []device.Device, by topology.Address) (near, far []device.Device) {
	for _, d := range devices {
		if a.coordinator.current().tree.Distance(by, d.Address).Level.Direct() {
			near = append(near, d)
		} else {
			far = append(far, d)
		}
	}
	return near, far
}

// allocated is an Allocate of the kubelet's.
func (a *admission) allocated(name string, ids []string) (order []string, refusal string) {
	a.t.Helper()
	taken, err := a.coordinator.Allocated(a.t.Context(), name, ids)
	if err != nil {
		a.t.Fatal(err)
	}
	_ = a.coordinator.Returned(a.t.Context(), name, ids, taken.GetRefusal() != "")
	return taken.GetDevices(), taken.GetRefusal()
}

// take is the Allocate after a question.
func (a *admission) take(pod kubelet.Pod, name string, ids []string) (refusal string) {
	a.t.Helper()
	listed, refusal := a.allocated(name, ids)
	if refusal != "" {
		return refusal
	}
	if !device.SameSet(listed, ids) {
		a.t.Fatalf("allocated %v, listed %v", ids, listed)
	}
	if a.pods[pod]["c"] == nil {
		a.pods[pod]["c"] = kubelet.Devices{}
	}
	a.pods[pod]["c"][name] = ids
	a.free[name] = slices.DeleteFunc(a.free[name], func(d device.Device) bool {
		return slices.Contains(ids, d.ID)
	})
	return ""
}

// keep makes the kubelet write the devices of a pod down.
func (a *admission) keep(pod kubelet.Pod) {
	a.recordedPods[pod] = a.pods[pod]
	a.record()
}

// run makes the kubelet write the devices of a pod down, and start the pod.
func (a *admission) run(pod kubelet.Pod) {
	a.keep(pod)
	for i := range a.specs {
		a.specs[i].Started = a.specs[i].Started || a.specs[i].Pod == pod
	}
}

// start admits a pod with one device on NUMA node 0.
func (a *admission) start(name, resource string) (kubelet.Pod, []string) {
	a.t.Helper()
	w := wish{gpus: 1}
	if resource == vfs {
		w = wish{vfs: 1}
	}
	pod := a.pending(name, w).Pod
	held, _ := a.serve(pod, resource, 0, 1)
	a.keep(pod)
	return pod, held
}

// observe returns the count of events from now on.
func (a *admission) observe() *tallied {
	seen := newTallied()
	a.coordinator.Observer = seen.observe
	return seen
}

// wantPairs checks that all pairs of a pod are on one switch each.
func (a *admission) wantPairs(pod kubelet.Pod, pairs int, why ...string) {
	a.t.Helper()
	if l := a.levels(a.pods[pod]["c"]); l != (levels{0: pairs}) {
		a.t.Errorf("pairs %v of %v\n%s", l, a.pods[pod]["c"], strings.Join(why, "\n"))
	}
}

// wantWords checks that a text has words.
func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q does not say %q", text, word)
		}
	}
}
