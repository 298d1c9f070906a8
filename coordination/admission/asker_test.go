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

// The sources of requests, "" for none, and the orders in which the kubelet asks for a container's halves.
var (
	everySource = []intent.Source{"", intent.PodsAPI, intent.Kubelet}
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
	_ = a.coordinator.Returned(name, ids, taken.GetRefusal() != "")
	a.named = append(a.named, taken.GetContainer())
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

func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q does not say %q", text, word)
		}
	}
}

func TestASchedulersChoiceIsHonoured(t *testing.T) {
	a := told(t)
	first := a.pending("first", wish{1, 1})
	first.Chosen = []string{"0000:46:00.0"}
	vf, why := a.serve(first.Pod, vfs, 0, 1) // the other half first
	wantWords(t, why, "team/first/c wants 1 amd.com/gpu, 1 nvidia.com/vf; kubelet asked first for ",
		"told by pods-api",
		"1 devices as the scheduler chose", "1 PIX")
	gpu, _ := a.serve(first.Pod, gpus, 0, 1)
	if gpu[0] != "0000:46:00.0" || !strings.HasPrefix(vf[0], "0000:41:") {
		t.Errorf("got %v %v", gpu, vf)
	}
	a.keep(first.Pod)

	second := a.pending("second", wish{2, 0})
	second.Chosen = []string{"0000:5d:00.0", "0000:46:00.0", "0000:8b:00.0", "GPU-unknown"}
	gpu, why = a.ask(gpus, 0, 2)
	wantWords(t, why, "1 devices as the scheduler chose", "0000:46:00.0 is held by team/first/c",
		"0000:8b:00.0 is not among what the kubelet offers", "GPU-unknown is no device")
	if !slices.Contains(gpu, "0000:5d:00.0") {
		t.Errorf("got %v", gpu)
	}
}

// TestRefusalOnAFlatMachine: a machine without switches has none whose VFs could be counted.
func TestRefusalOnAFlatMachine(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "nv-h200-vm-flat", 0, true, 1)
	gpu := topology.Address{Bus: 5}
	near, owners := describeNear(a.coordinator.current().books(), gpu, nil)
	if near != "the GPU is on no switch (pci0000:00)" || len(owners) > 0 {
		t.Errorf("%q, held by %v", near, owners)
	}
}

// A pod is refused as soon as it is known that its pairs cannot be on one switch each, whichever half comes
// first: at its first half if a source tells of it.
func TestRequiredAlignment(t *testing.T) {
	t.Parallel()
	eachOrder(t, []intent.Source{"", intent.PodsAPI}, func(t *testing.T, a *admission, order []string) {
		a.withoutNearVFs()
		strict := a.pending("strict", wish{4, 4})
		strict.Alignment = intent.Required
		asks, half := intent.Relaxation, order[0]
		if a.source == "" {
			a.coordinator.Alignment = intent.Required
			asks, half = "the plugins' flag --alignment=required asks that of every pod", order[1]
		}
		refusal, at := a.refusalOf(strict.Pod, order)
		wantWords(t, refusal, "refuse 4 "+half, "only 3 of 4 pairs", "GPU 0000:11:00.0", "NODE", "switch 0000:",
			"0 of 4 VFs are free, the rest is held")
		if at != half || strings.Contains(refusal, "greedy") || !strings.HasSuffix(refusal, " ("+asks+")") {
			t.Errorf("refused at %s, want %s, without another pod's name, with %q: %q", at, half, asks, refusal)
		}
		if told, err := a.coordinator.Explain(t.Context(), "", "strict", ""); a.source != "" &&
			(err != nil || !strings.HasSuffix(told[len(told)-1].GetRefusal(), "held by team/greedy/c")) {
			t.Errorf("explain does not tell who holds the rest: %v, %v", told, err)
		}
		a.remove(strict.Pod)
		easy := a.pending("easy", wish{1, 1})
		easy.Alignment = intent.Required
		for _, name := range order {
			a.serve(easy.Pod, name, 0, 1)
		}
	})
}

// The source has let the pod's annotation count.
func TestPreferredAlignmentStandsAboveTheFlag(t *testing.T) {
	a := told(t)
	a.coordinator.Alignment = intent.Required
	lax := a.pending("lax", wish{4, 2}) // two GPUs have no VF of their own
	lax.Alignment = intent.Preferred
	a.serve(lax.Pod, gpus, 0, 4)
	a.serve(lax.Pod, vfs, 0, 2)
	strict := a.pending("strict", wish{4, 0}) // no pair at all
	a.serve(strict.Pod, gpus, 1, 4)
}
