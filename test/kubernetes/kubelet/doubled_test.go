// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
)

// TestStockPluginsGiveADeviceToTwoPods: the kubelet gives a device out twice (kubernetes PR 137534). When
// anybody calls PodResources List while an Allocate is in flight, and a pod has ended since the look before,
// the kubelet frees what that pod had by rebuilding its record of allocated devices, in which the device in
// flight is not yet (UpdateAllocatedDevices in pkg/kubelet/cm/devicemanager/manager.go). To it that device is
// free from then on, although its pod runs. A plugin that answers at once, as stock ones do, gives the device
// to the next pod, and nobody notices. TestChaos has the same fault with Tandem.
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
	first := one("first")
	for _, second := range []*v1.Pod{one("second"), one("third")} { // one of them gets what the old pod had
		if slices.Equal(n.Devices(first, "app")[fakeVF], n.Devices(second, "app")[fakeVF]) {
			return
		}
	}
	t.Error("no device has two pods: this kubelet does not give one out twice any more")
}
