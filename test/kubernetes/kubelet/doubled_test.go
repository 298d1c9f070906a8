// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// The kubelet gives a device out twice (kubernetes PR 137534): when anybody calls PodResources List while an
// Allocate is in flight, and a pod has ended since the look before, the kubelet frees what that pod had by
// rebuilding its record of allocated devices, in which the device in flight is not yet
// (UpdateAllocatedDevices in pkg/kubelet/cm/devicemanager/manager.go). To it that device is free from then
// on, although its pod runs.
func loseSight(t *testing.T, n *node.Node, dir string, old *v1.Pod, admit func()) {
	t.Helper()
	lister := podResourcesClient(t, dir)
	list := sync.OnceFunc(func() {
		n.Terminate(old)
		if _, err := lister.List(deadline(t), &podresources.ListPodResourcesRequest{}); err != nil {
			t.Error(err)
		}
	})
	n.Intercept(func(call node.Call) {
		if call.Method == node.Allocate {
			list()
		}
	}, func(node.Call) {})
	admit()
	n.Intercept(func(node.Call) {}, func(node.Call) {})
}

// A plugin that answers at once, as stock ones do, gives the device to the next pod, and nobody notices.
func TestStockPluginsGiveADeviceToTwoPods(t *testing.T) {
	n, dir := startNode(t, node.Options{
		NUMA: []node.NUMA{{ID: 0, Distances: []uint64{10, 32}}, {ID: 1, Distances: []uint64{32, 10}}},
	})
	pool := &fakePlugin{resource: fakeVF, devices: fakeDevices("pool", 4)}
	pool.prefer = func(available, _ []string, size int) []string {
		return slices.Sorted(slices.Values(available))[:size]
	}
	pool.offer(t, n, dir)
	one := func(name string) *v1.Pod {
		pod := node.Pod(name, nil, []v1.Container{node.Container("app", map[string]int{fakeVF: 1})})
		must(t, n.Admit(pod))
		return pod
	}
	old := one("old")
	var first *v1.Pod
	loseSight(t, n, dir, old, func() { first = one("first") })
	for _, second := range []*v1.Pod{one("second"), one("third")} { // one of them gets what the old pod had
		if slices.Equal(n.Devices(first, "app")[fakeVF], n.Devices(second, "app")[fakeVF]) {
			return
		}
	}
	t.Error("no device has two pods: this kubelet does not give one out twice any more")
}

// With Tandem the next pod gets another VF, and where there is none it is refused, and no other pod is named.
func TestTandemGivesNoDeviceToTwoPods(t *testing.T) {
	r := startRig(t, rig.Setup{
		Machine: "oci-mi300x-derived", VFsPerPF: 1, ExcludeTopology: true, Coordinated: true,
	})
	old := admitBest(t, r, "old", want{0, 1})
	admitBest(t, r, "filler", want{0, r.Free(rig.VF) - 1})
	loseSight(t, r.Node, r.KubeletDir(), old, func() { admitBest(t, r, "first", want{0, 1}) })
	if err := r.Remove(old); err != nil {
		t.Fatal(err)
	}
	// Both the old pod's VF and that of the first one are free in the kubelet's eyes. The rig knows of both
	// pods, and would find a VF with two owners.
	admitBest(t, r, "second", want{0, 1})
	_, err := r.Admit(deadline(t), shape{app: []want{{0, 1}}}.pod("third", r.GPU))
	var rejection *node.Rejection
	if !errors.As(err, &rejection) || rejection.Reason != "UnexpectedAdmissionError" ||
		!strings.Contains(rejection.Message, "another pod has it") || strings.Contains(rejection.Message, "first") {
		t.Errorf("third pod: %v, want it refused without a name", err)
	}
}
