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
				Checkpoint: read(recorded), Pods: pods, View: view(map[string]string{"a/c": gpus + " g3", "b/c": ""}),
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

// A later pod of the name is shown in admission under the UID of the pod that lives, and is rejected: the
// kubelet that showed the devices has them in its records, or has freed them.
func TestRejectedPodOfANameHoldsNothing(t *testing.T) {
	t.Parallel()
	in := func(life, side string) holders.Sources {
		shown, _ := view(map[string]string{"a/c": gpus + " g1", "a/side": side}).Get()
		shown.Life = life
		pods, _ := living(true, map[string]string{"u1": "a"}).Get()
		pods.Started = map[string]bool{"u1": true}
		return holders.Sources{
			Checkpoint: read(record(t, map[string]string{"u1/c": gpus + " g1"})), View: kubelet.Read(shown, nil),
			Pods: kubelet.Read(pods, nil), Life: life,
		}
	}
	admitted := holders.Find(in("k", gpus+" g8"))
	if diff := cmp.Diff([]string{"g1: u1 a/c", "g8: u1 a/side open"}, held(admitted.Holders)); diff != "" {
		t.Errorf("in admission (-want +got):\n%s", diff)
	}
	after := in("k", "")
	after.Before, after.Known = admitted.Holders, admitted.Known
	if diff := cmp.Diff([]string{"g1: u1 a/c"}, held(holders.Find(after).Holders)); diff != "" {
		t.Errorf("after the rejection (-want +got):\n%s", diff)
	}
}
