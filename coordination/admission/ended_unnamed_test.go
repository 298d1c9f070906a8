// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"

	"slices"
)

// A pod has GPUs and ends before the next question. List named the pod at its question, and lacks the pod
// now: its GPUs are free for the next pod, whose container has another name, and which asks for VFs first.
func TestEndedPodWithAContainerNameOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"same", "own"} {
		a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
		a.keepCheckpoint()
		start := func(pod, container string, devices int) kubelet.Pod {
			p := a.add(pod)
			a.pods[p][container] = kubelet.Devices{}
			chosen, _ := a.ask(gpus, 0, devices)
			if _, refusal := a.allocated(gpus, chosen); refusal != "" {
				t.Fatal(refusal)
			}
			a.pods[p][container][gpus] = chosen
			a.free[gpus] = slices.DeleteFunc(a.free[gpus], func(d device.Device) bool {
				return slices.Contains(chosen, d.ID)
			})
			a.keep(p)
			return p
		}
		start("other", "main", 2)
		ended := start("ended", map[string]string{"same": "main", "own": "trainer"}[name], 1)
		left := a.pods[ended]
		a.remove(ended) // and no checkpoint
		next := a.add("next")
		a.pods[next]["main"] = kubelet.Devices{}
		chosen, why := a.ask(vfs, 0, 2)
		a.allocated(vfs, chosen)
		got := a.levels(kubelet.Devices{vfs: chosen, gpus: ids(a.aligned(gpus, []int{0}))})
		if got != (levels{0: 2}) {
			t.Errorf("%s container name: VFs %v beside GPUs %v: %v; the ended pod had %v\n%s", name, chosen,
				ids(a.aligned(gpus, []int{0})), got, left, why)
		}
	}
}
