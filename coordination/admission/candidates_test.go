// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// withoutNearVFs lets a started pod take all VFs of the first GPU's switch: a pod with four pairs then has
// one that is apart.
func (a *admission) withoutNearVFs() {
	greedy := a.pending("greedy", wish{0, 4})
	var near []string
	for _, d := range a.all[vfs] {
		if strings.HasPrefix(d.ID, "0000:0c:") {
			near = append(near, d.ID)
		}
	}
	a.ask(vfs, 0, 4)
	a.take(greedy.Pod, vfs, near)
	a.keep(greedy.Pod)
	a.specs[0].Started = true
}

// refusalOf asks for four devices of each kind for a pod, and returns the refusal and its half.
func (a *admission) refusalOf(pod kubelet.Pod, order []string) (refusal, at string) {
	for _, name := range order {
		ids, _ := a.ask(name, 0, 4)
		if refusal := a.take(pod, name, ids); refusal != "" {
			return refusal, name
		}
	}
	return "", ""
}

// Two pods wait, by the API server, with different requests, and PodResources is not listed: the asker is not
// certain. A requirement of both is a requirement of the asker; a requirement of one is none.
func TestRequiredByEveryCandidate(t *testing.T) {
	for _, tc := range []struct {
		name          string
		policy        intent.Alignment
		strict, other intent.Alignment
		otherIsOlder  bool
		refuses       bool
	}{
		{"by the node", intent.Required, "", "", false, true},
		{"by the node, the other is likelier", intent.Required, "", "", true, true},
		{"by both pods", "", intent.Required, intent.Required, false, true},
		{"by both pods, the other is likelier", "", intent.Required, intent.Required, true, true},
		{"by the node, and both lift it", intent.Required, intent.Preferred, intent.Preferred, false, false},
		{"by nobody", "", "", "", true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := told(t)
			a.source, a.unlisted = intent.PodsAPI, true
			a.coordinator.Alignment = tc.policy
			a.withoutNearVFs()
			a.pending("strict", wish{4, 4})
			a.pending("other", wish{4, 1})
			strict, other := &a.specs[1], &a.specs[2]
			strict.Started = false // both wait
			strict.Alignment, other.Alignment = tc.strict, tc.other
			if tc.otherIsOlder {
				other.Created = strict.Created.Add(-time.Hour)
			}
			if refusal, _ := a.refusalOf(strict.Pod, bothOrders[0]); (refusal != "") != tc.refuses {
				t.Errorf("refusal %q, want one: %t; GPUs %v, VFs %v", refusal, tc.refuses,
					a.pods[strict.Pod]["c"][gpus], a.pods[strict.Pod]["c"][vfs])
			}
		})
	}
}
