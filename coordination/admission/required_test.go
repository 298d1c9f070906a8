// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// certain are the sources whose lists say who asks.
var certain = []intent.Source{intent.PodsAPI, intent.Kubelet}

// scarce leaves two VFs on NUMA node 0 beside its four GPUs, so that the kubelet asks nothing for a container
// that wants both, and returns what it will give.
func (a *admission) scarce() map[string][]string {
	greedy := a.pending("greedy", wish{0, 14}).Pod
	a.take(greedy, vfs, ids(a.aligned(vfs, []int{0}))[2:])
	a.run(greedy)
	return map[string][]string{gpus: ids(a.aligned(gpus, []int{0})), vfs: ids(a.aligned(vfs, []int{0}))}
}

// A pod that may have any pairs is not refused for the annotation of another one that may be asking as well:
// one that was just refused, one that the kubelet has not seen yet, or one that waits behind it.
func TestNobodyIsRefusedForAnother(t *testing.T) {
	t.Parallel()
	for _, age := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(fmt.Sprint("the other one older by ", age), func(t *testing.T) {
			eachOrder(t, certain, func(t *testing.T, a *admission, order []string) {
				given := a.scarce()
				a.specs = append(a.specs, intent.Pod{
					Pod: kubelet.Pod{Namespace: "other", Name: "strict"}, UID: "uid-strict", Created: a.now.Add(-age),
					Alignment:  intent.Required,
					Containers: []intent.Container{{Name: "c", Requests: a.requests(wish{4, 2})}},
				})
				lax := a.pending("lax", wish{4, 2}).Pod
				for i := range a.specs[1:] {
					a.specs[1+i].Started = false
				}
				for _, name := range order {
					if refusal := a.take(lax, name, given[name]); refusal != "" {
						t.Fatal(refusal)
					}
				}
			})
		})
	}
}

// A pod that asks for it is refused, though it is given everything without a question.
func TestStrictPodIsRefused(t *testing.T) {
	t.Parallel()
	eachOrder(t, certain, func(t *testing.T, a *admission, order []string) {
		given := a.scarce()
		strict := a.pending("strict", wish{4, 2})
		strict.Alignment = intent.Required
		refuses := func(name string) bool { return a.take(strict.Pod, name, given[name]) != "" }
		if !refuses(order[0]) && !refuses(order[1]) {
			t.Error("not refused")
		}
		for _, id := range a.coordinator.heldOf(vfs) {
			if order[1] == vfs && slices.Contains(given[vfs], id) {
				t.Errorf("the refused VF %s counts as given", id)
			}
		}
	})
}
