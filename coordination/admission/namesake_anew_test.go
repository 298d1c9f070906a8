// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// A pod with an init container has ended, and a later pod of the name gets the same VF as the answer to a
// question, which proves the end of the earlier pod: its GPUs are free. A takeover between question and
// Allocate changes nothing.
func TestNamesakeAfterATakeoverAmidAQuestion(t *testing.T) {
	t.Parallel()
	for _, source := range []intent.Source{"", intent.Kubelet, intent.PodsAPI} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("source %q, takeover %t", source, crash), func(t *testing.T) {
				t.Parallel()
				a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
				a.source = source
				a.keepCheckpoint()
				name := kubelet.Pod{Namespace: "team", Name: "train-0"}
				a.pending(name.Name, wish{1, 1})
				for _, resource := range []string{vfs, gpus} {
					chosen, _ := a.ask(resource, 0, 1)
					a.take(name, resource, chosen)
				}
				early := a.pods[name]["c"]
				a.recordedPods[name] = map[string]kubelet.Devices{"init": early, "c": early} // c has taken over
				a.record()
				a.pending("small", wish{0, 1})
				a.ask(vfs, 0, 1) // a look shows the names
				a.remove(kubelet.Pod{Namespace: "team", Name: "small"})
				a.remove(name) // and no checkpoint

				a.pending(name.Name, wish{1, 1})
				a.pods[name]["c"] = kubelet.Devices{}
				chosen, _ := a.ask(vfs, 0, 1)
				if crash {
					a.takeOver()
				}
				a.take(name, vfs, chosen)
				gpu, why := a.ask(gpus, 0, 1)
				a.take(name, gpus, gpu)
				if l := a.levels(a.pods[name]["c"]); l != (levels{0: 1}) {
					t.Errorf("%v of %v, earlier %v\n%s", l, a.pods[name]["c"], early, why)
				}
			})
		}
	}
}
