// SPDX-License-Identifier: Apache-2.0

package holders_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// A kubelet that has just started keeps in its checkpoint the devices of a pod that ended meanwhile, beside
// those of a later pod of the name. The later pod is not in admission, and holds its devices once, whichever
// UID is the lower one.
func TestBothPodsOfANameAreRecorded(t *testing.T) {
	t.Parallel()
	for early, late := range map[string]string{"u1": "u3", "u3": "u1"} {
		for source, pods := range map[string]kubelet.Reading[holders.Pods]{
			"none": {}, "https": living(false, map[string]string{late: "a"}),
		} {
			recorded := record(t, map[string]string{
				early + "/c": gpus + " g1 " + vfs + " v1", late + "/c": gpus + " g3",
			})
			found := holders.Find(holders.Sources{
				Recorded: read(recorded), Pods: pods, View: view(map[string]string{"a/c": gpus + " g3", "b/c": ""}),
				Known:    map[string]holders.Known{early: {Pod: kubelet.Pod{Name: "a"}}},
				Question: &api.PreferRequest{Resource: vfs, Available: []string{"v2"}}, Withheld: []string{"v1"},
			}).Holders
			want := []string{"g1: " + early + " a/c", "g3: " + late + " a/c", "v1: " + early + " a/c"}
			if diff := cmp.Diff(want, held(found)); diff != "" {
				t.Errorf("source %s, the earlier pod %s: held (-want +got):\n%s", source, early, diff)
			}
		}
	}
}
