// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"flag"
	"fmt"
	"math"
	"sort"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/test/scale"
)

var (
	admissions = flag.Int("admissions", 20_000, "admissions of TestFaultsHeal, over all sources of requests")
	firstSeed  = flag.Uint64("seed", 1, "first seed of TestFaultsHeal")
)

// Numbers of steps.
const (
	stormSteps = 12
	calmSteps  = 12
	runSteps   = 20 * (stormSteps + calmSteps)
)

// simulation is a run of storms and calms. Two runs of one simulation are equal.
type simulation struct {
	seed   uint64
	source intent.Source
}

func (s simulation) String() string { return fmt.Sprintf("source %q, seed %d", s.source, s.seed) }

// run admits at most a number of pods.
func (s simulation) run(t *testing.T, most int) *storm {
	r := newStorm(t, s.seed, s.source)
	r.most = most
	for steps := 0; steps < runSteps && r.admitted < most; steps += stormSteps + calmSteps {
		r.rage(stormSteps)
		r.settle()
		for i := 0; i < calmSteps && r.admitted < most; i++ {
			r.step()
		}
	}
	return r
}

// healed are promises that a source cannot keep, in a calm as without any fault before: see troubles. With
// names alone a pod that ends before the next List has shown the pod cannot be told from an init container.
func (s simulation) healed() promises {
	if s.source == "" {
		return promises{stuck, lostInit, notBest}
	}
	return nil
}

// report describes the shortest run that breaks a promise: the number of admissions and the story.
func (s simulation) report(t *testing.T, admitted int) string {
	n := sort.Search(admitted, func(n int) bool { return s.run(t, n).check(s.healed()) != nil })
	breach := s.run(t, n).check(s.healed())
	return fmt.Sprintf("%v, %d admissions: %v", s, n, breach)
}

// TestFaultsHeal: whatever has happened before, with all sources back the coordinator is right again: nothing
// is remembered that the next look at the kubelet's records does not mend.
func TestFaultsHeal(t *testing.T) {
	sources := []intent.Source{"", intent.PodsAPI, intent.Kubelet}
	runs := scale.Rounds(max(1, *admissions/(len(sources)*runSteps/2)))
	for _, source := range sources {
		for i := range runs {
			s := simulation{seed: *firstSeed + uint64(i), source: source}
			t.Run(s.String(), func(t *testing.T) {
				t.Parallel()
				r := s.run(t, math.MaxInt)
				if r.check(s.healed()) != nil {
					t.Error(s.report(t, r.admitted))
				}
				total.add(r)
			})
		}
	}
	t.Cleanup(func() { t.Log(&total) })
}

// total counts what all simulations of the process have had.
var total tally

type tally struct {
	admissions, faults atomic.Int64
}

func (a *tally) add(s *storm) {
	a.admissions.Add(int64(s.admitted))
	a.faults.Add(int64(s.faulted))
}

// String returns the counts for people.
func (a *tally) String() string {
	return fmt.Sprintf("%d admissions, %d faults", a.admissions.Load(), a.faults.Load())
}

// TestStormIsDeterministic: a simulation repeats itself to the byte, so that a seed reproduces a finding.
func TestStormIsDeterministic(t *testing.T) {
	t.Parallel()
	run := func() string {
		var lines strings.Builder
		s := simulation{seed: *firstSeed, source: intent.PodsAPI}.run(t, 100)
		if err := s.kubelet.History.History().Write(&lines); err != nil {
			t.Fatal(err)
		}
		return lines.String()
	}
	first := run()
	if again := run(); again != first {
		t.Fatalf("two runs of a seed differ:\n%s\n\n%s", first, again)
	}
}
