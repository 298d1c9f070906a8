// SPDX-License-Identifier: Apache-2.0

package holders_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// A kubelet has lost its records. While the request source does not answer, List shows the end of a pod that
// it has shown before; a first List of the kubelet shows none.
func TestLostPodEnds(t *testing.T) {
	t.Parallel()
	recorded := record(t, map[string]string{"u1/c": gpus + " g1", "u2/c": gpus + " g2"})
	all := living(false, map[string]string{"u1": "a", "u2": "b"})
	last := holders.Look(holders.Sources{Recorded: kubelet.Read(recorded, nil), Pods: all, Kubelet: "first"})
	both := []string{"g1: u1 a/c", "g2: u2 b/c"}
	for i, step := range []struct {
		shown map[string]string
		want  []string
	}{
		{map[string]string{"b/c": ""}, both},
		{map[string]string{"a/c": "", "b/c": ""}, both},
		{map[string]string{"b/c": ""}, both[1:]},
	} {
		shown, _ := view(step.shown).Get()
		shown.Life = "second"
		last = holders.Look(holders.Sources{
			Recorded: kubelet.Read(record(t, nil), nil), View: kubelet.Read(shown, nil), Kubelet: "second",
			Pods:  kubelet.Read(holders.Pods{}, errors.New("no answer")),
			Known: last.Known, Before: last.Holders, Looked: true, Life: "second",
		})
		if diff := cmp.Diff(step.want, held(last.Holders)); diff != "" {
			t.Errorf("List %d: held (-want +got):\n%s", i, diff)
		}
	}
}
