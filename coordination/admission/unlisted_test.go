// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// As TestLostNewestContainer, with the kubelet's own list, which lacks the pod at the first question, and
// has it as started at the last one. In between comes a takeover, or a question without an answer of the
// list.
func TestLostNewestContainerIsListedLater(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(a *admission){
		"nothing":    func(*admission) {},
		"a takeover": func(a *admission) { a.takeOver() },
		"no answer of the list": func(a *admission) {
			told := sourcesOf(a.coordinator).pods
			sourcesOf(a.coordinator).pods = func(context.Context) (intent.Answer, error) {
				return intent.Answer{}, errors.New("no answer")
			}
			a.ask(vfs, 1, 1)
			sourcesOf(a.coordinator).pods = told
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := told(t)
			a.source = intent.Kubelet
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
			all := slices.Clone(a.specs)
			a.specs = a.specs[:1] // not listed yet
			a.pending("small", wish{0, 1})
			a.ask(vfs, 1, 1)
			between(a)
			a.specs = append(all, a.specs[1:]...)
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
