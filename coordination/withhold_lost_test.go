// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
)

// A kubelet that has started without its records adds its pods to its list one by one. A pod that the list
// does not have yet has its devices withheld once it is listed, as holders.Result.Unlisted keeps them for
// the coordinator.
func TestWithholdOnceListed(t *testing.T) {
	t.Parallel()
	listed, younger := []intent.Pod{{UID: "younger"}, {UID: "holder"}}, []intent.Pod{{UID: "younger"}}
	w := newWithholding(t)
	w.source = intent.Kubelet
	w.pods = listed
	w.healthy("new/vf")
	w.give(nil)
	for i, pods := range [][]intent.Pod{younger, listed} {
		w.life, w.pods = "second", pods
		got := w.healthy("new/vf")
		if want := []string{freeVF}; i == 1 && !slices.Equal(got, want) {
			t.Errorf("healthy are %v, want %v", got, want)
		}
	}
}
