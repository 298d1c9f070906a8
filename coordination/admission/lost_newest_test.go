// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// A container that no question has followed runs: its pod is listed as started. The kubelet starts without
// its records, and shows the container without devices. The container keeps its device, for the next server
// too.
func TestLostNewestContainer(t *testing.T) {
	t.Parallel()
	for name, crash := range map[string]func(a *admission){
		"the same server": func(*admission) {},
		"a takeover after the start of the kubelet": func(a *admission) { a.takeOver() },
		"a takeover, and no List of the next kubelet": func(a *admission) {
			a.takeOver()
			a.coordinator.MayList = false
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := told(t)
			a.start("first", vfs)
			newest, held := a.start("newest", gpus)
			for i := range a.specs {
				a.specs[i].Started = true
			}
			// the kubelet starts without its records, and has lost them
			sourcesOf(a.coordinator).life = func() string { return "a later kubelet" }
			for pod := range a.pods {
				a.pods[pod] = map[string]kubelet.Devices{"c": {}}
			}
			clear(a.recordedPods)
			a.freeAll()
			a.record()
			crash(a)
			a.pending("next", wish{1, 0})
			for range 4 {
				chosen, why := a.ask(gpus, 0, 1)
				if slices.Contains(chosen, held[0]) {
					t.Errorf("the GPU of %v is chosen: %s", newest, why)
				}
			}
			if holder := a.coordinator.holderOf(gpus, held[0]); holder == "" {
				t.Errorf("nobody holds the GPU of %v", newest)
			}
		})
	}
}
