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

// lostNewest returns an admission under a kubelet that has started without its records, and the GPU of its
// newest container, which no question has followed. All pods run.
func lostNewest(t *testing.T, source intent.Source) (a *admission, gpu string) {
	t.Helper()
	a = told(t)
	a.source = source
	a.start("first", vfs)
	_, held := a.start("newest", gpus)
	for i := range a.specs {
		a.specs[i].Started = true
	}
	sourcesOf(a.coordinator).life = func() string { return "a later kubelet" }
	for pod := range a.pods {
		a.pods[pod] = map[string]kubelet.Devices{"c": {}}
	}
	clear(a.recordedPods)
	a.freeAll()
	a.record()
	return a, held[0]
}

// checkHeld checks that a GPU is chosen for nobody, and held.
func (a *admission) checkHeld(gpu string) {
	a.t.Helper()
	a.pending("next", wish{1, 0})
	for range 4 {
		if chosen, why := a.ask(gpus, 0, 1); slices.Contains(chosen, gpu) {
			a.t.Errorf("the GPU of the newest container is chosen: %s", why)
		}
	}
	if holder := a.coordinator.holderOf(gpus, gpu); holder == "" {
		a.t.Error("nobody holds the GPU of the newest container")
	}
}

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
			a, gpu := lostNewest(t, intent.PodsAPI)
			crash(a)
			a.checkHeld(gpu)
		})
	}
}

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
			a, gpu := lostNewest(t, intent.Kubelet)
			all := slices.Clone(a.specs)
			a.specs = a.specs[:1] // not listed yet
			a.pending("small", wish{0, 1})
			a.ask(vfs, 1, 1)
			between(a)
			a.specs = append(all, a.specs[1:]...)
			a.checkHeld(gpu)
		})
	}
}
