// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// A pod with an init container has ended, and a later pod of the name gets all free GPUs of a NUMA node
// without a question, that of the earlier pod among them. The VF of the earlier pod is free, and is chosen
// beside its GPU.
func TestNamesakeHasGPUOfTheEarlierPod(t *testing.T) {
	t.Parallel()
	for _, source := range []intent.Source{"", intent.Kubelet, intent.PodsAPI} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("source %q, takeover %t", source, crash), func(t *testing.T) {
				t.Parallel()
				a := newAdmission(t, "oci-mi300x-derived", 1, true, 1)
				a.source = source
				a.keepCheckpoint()
				name := kubelet.Pod{Namespace: "team", Name: "train-0"}
				a.pending(name.Name, wish{1, 1})
				for _, resource := range []string{gpus, vfs} {
					chosen, _ := a.ask(resource, 0, 1)
					a.take(name, resource, chosen)
				}
				early := a.pods[name]["c"]
				a.recordedPods[name] = map[string]kubelet.Devices{"init": early, "c": early} // c has taken over
				a.record()
				a.pending("small", wish{0, 1})
				a.prefer(vfs, ids(a.free[vfs]), nil, 1) // a look shows the names
				a.remove(kubelet.Pod{Namespace: "team", Name: "small"})
				a.remove(name) // and no checkpoint

				a.pending(name.Name, wish{4, 4})
				a.pods[name]["c"] = kubelet.Devices{}
				a.take(name, gpus, ids(a.aligned(gpus, []int{0})))
				if crash {
					a.takeOver()
				}
				chosen, why := a.prefer(vfs, ids(a.free[vfs]), nil, 4)
				a.take(name, vfs, chosen)
				if l := a.levels(a.pods[name]["c"]); l != (levels{0: 4}) {
					t.Errorf("%v of %v, earlier %v\n%s", l, a.pods[name]["c"], early, why)
				}
			})
		}
	}
}
