// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
)

// The kubelet gives a container some GPUs and fails the pod, since it lacks what it wants of another
// resource: then it writes no checkpoint. The next pod is another one, whatever it asks for, and adds to none
// of them.
func TestGivenUpAmidAContainer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		source          intent.Source
		unlisted, asked bool
	}{
		"the Pods API, not asked":            {source: intent.PodsAPI},
		"the Pods API":                       {source: intent.PodsAPI, asked: true},
		"the Pods API alone, not asked":      {source: intent.PodsAPI, unlisted: true},
		"the Pods API alone":                 {source: intent.PodsAPI, unlisted: true, asked: true},
		"the kubelet's list of pods":         {source: intent.Kubelet, asked: true},
		"nothing but PodResources, asked of": {asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := told(t)
			a.admit(a.pending("before", wish{1, 0}).Pod, "c", wish{1, 0})
			a.source, a.unlisted = tc.source, tc.unlisted
			failed := a.pending("failed", wish{2, 4})
			given := ids(a.aligned(gpus, []int{0}))[:2]
			if tc.asked {
				given, _ = a.ask(gpus, 0, 2)
			}
			a.take(failed.Pod, gpus, given)
			a.remove(failed.Pod) // no VF is left for it

			next := a.pending("next", wish{0, 1})
			next.Alignment = intent.Required
			a.now = a.now.Add(FollowWindow)
			chosen, why := a.ask(vfs, 0, 1)
			if tc.source != "" {
				wantWords(t, why, "team/next/c wants 1 nvidia.com/vf; kubelet asked first for VFs; told by "+
					string(tc.source))
			} else {
				wantWords(t, why, "kubelet asked first for VFs")
			}
			if refusal := a.take(next.Pod, vfs, chosen); refusal != "" {
				t.Error(refusal)
			}
			if to := a.coordinator.current().open.container; !to.Lacks(gpus) {
				t.Errorf("%s has GPUs too: %v", to.Name(), to.Devices)
			}
			for _, id := range given {
				if holder := a.coordinator.holderOf(gpus, id); holder != "" {
					t.Errorf("%s still holds GPU %s", holder, id)
				}
			}
		})
	}
}
