// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/scale"
)

// tallied counts the events of a coordinator.
type tallied struct {
	asked    map[Answered]int
	planned  int
	ended    map[PlanOutcome]int
	outcomes map[Outcome]int
	levels   levels
	last     Verdict
}

func newTallied() *tallied {
	return &tallied{asked: map[Answered]int{}, ended: map[PlanOutcome]int{}, outcomes: map[Outcome]int{}}
}

func (c *tallied) observe(event any) {
	switch e := event.(type) {
	case Answered:
		c.asked[e]++
	case Planned:
		c.planned += int(e)
	case PlanOutcome:
		c.ended[e]++
	case Verdict:
		c.outcomes[e.Outcome]++
		for _, p := range e.Pairs {
			c.levels[p.Distance.Level]++
		}
		c.last = e
	}
}

// Every pair is counted once, at its distance, whatever the kind of container and whichever half came first;
// so is every plan.
func TestWhatIsObservedIsWhatHappened(t *testing.T) {
	wishes := []wish{{1, 1}, {2, 2}, {4, 4}, {1, 0}, {0, 1}, {2, 1}}
	for seed := range uint64(scale.Rounds(30)) {
		for _, source := range []intent.Source{intent.PodsAPI, ""} {
			a := newAdmission(t, "oci-mi300x-derived", 2, seed%2 == 0, seed)
			a.source = source
			a.keepCheckpoint()
			seen := newTallied()
			a.coordinator.Observer = seen.observe
			var want levels
			complete := 0
			for i, w := range wishes {
				pod := a.add("pod" + string(rune('a'+i)))
				a.tell(pod, container{"worker", w})
				if !a.admit(pod, "worker", w) || w.gpus == 0 || w.vfs == 0 {
					continue
				}
				complete++
				for level, n := range a.levels(a.pods[pod]["worker"]) {
					want[level] += n
				}
			}
			if seen.levels != want || seen.outcomes[Aligned]+seen.outcomes[Degraded] != complete {
				t.Errorf("seed %d, source %q: pairs %v of containers %v, want %v of %d",
					seed, source, seen.levels, seen.outcomes, want, complete)
			}
			for s := range seen.asked {
				if s != Answered(source) && source != "" {
					t.Errorf("seed %d: asked %v", seed, seen.asked)
				}
			}
			a.now = a.now.Add(planTTL)
			_ = a.coordinator.decide(func(tx *transaction) error { tx.expirePromise(); return nil })
			ended := 0
			for n := range maps.Values(seen.ended) {
				ended += n
			}
			if ended != seen.planned || seen.ended[Kept] == 0 ||
				source != "" && (seen.ended[Overruled] > 0 || seen.ended[Dropped] > 0) {
				t.Errorf("seed %d, source %q: %d plans, ended %v", seed, source, seen.planned, seen.ended)
			}
		}
	}
}

// A container whose pairs are not on one switch each is a warning that names it and them. Where alignment is
// required, the refusal names the pod.
func TestPairsApartAreObserved(t *testing.T) {
	t.Parallel()
	for _, alignment := range []intent.Alignment{intent.Preferred, intent.Required} {
		a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
		a.source, a.coordinator.Alignment = intent.PodsAPI, alignment
		a.keepCheckpoint()
		var said strings.Builder
		a.coordinator.Log = slog.New(slog.NewTextHandler(&said, nil))
		seen, pod := a.observe(), a.pending("pod", wish{1, 1}).Pod
		gpu := a.all[gpus][0]
		_, far := a.split(a.all[vfs], gpu.Address)
		a.take(pod, gpus, []string{gpu.ID})
		_, refusal := a.allocated(vfs, []string{far[0].ID})
		if alignment == intent.Preferred {
			wantWords(t, said.String(), "level=WARN", "container=team/pod/c", gpu.ID+"-"+far[0].ID, "no choice")
			continue
		}
		v := seen.last
		if refusal == "" || v.Outcome != RefusedAlignment || v.Refusal != refusal || v.PodUID != a.uids[pod] ||
			v.Container == nil || *v.Container != (kubelet.Container{Pod: pod, Name: "c"}) {
			t.Errorf("refusal %q was observed as %+v", refusal, v)
		}
	}
}
