// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

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
