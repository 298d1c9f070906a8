// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"sort"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// Numbers of steps, and of admissions of TestFaultsHeal, over all sources of requests.
const (
	stormSteps = 12
	calmSteps  = 12
	runSteps   = 20 * (stormSteps + calmSteps)
	admissions = 20_000
)

// simulate runs storms and calms that admit at most a number of pods, and returns the broken promise.
func simulate(t *testing.T, seed uint64, source intent.Source, most int) (*storm, error) {
	s := newStorm(t, seed, source)
	s.most = most
	for steps := 0; steps < runSteps && s.admitted < most; steps += stormSteps + calmSteps {
		s.rage(stormSteps)
		s.settle()
		for i := 0; i < calmSteps && s.admitted < most; i++ {
			s.step()
		}
	}
	// These a source cannot keep, in a calm as without any fault before: see troubles. With names alone a pod
	// that ends before the next List has shown the pod cannot be told from an init container.
	var exempt promises
	if source == "" {
		exempt = promises{stuck, lostInit, notBest}
	}
	return s, s.check(exempt)
}

// simulateAll runs a seed with each source of requests, until a promise is broken: then the report is of the
// shortest run that breaks one.
func simulateAll(t *testing.T, seed uint64, most int) *seeds.Report {
	report := &seeds.Report{
		Seed: seed, Faults: map[string]int{}, Repeat: fmt.Sprintf(
			"go test -run '^TestFaultsHeal$' ./coordination/admission -admissions=1 -seed=%d", seed),
	}
	events := fnv.New64a()
	for _, source := range everySource {
		s, broken := simulate(t, seed, source, most)
		if broken != nil {
			fails := func(n int) bool { _, broken := simulate(t, seed, source, n); return broken != nil }
			s, broken = simulate(t, seed, source, sort.Search(s.admitted, fails))
			report.Violation = broken.Error()
		}
		report.Of = fmt.Sprintf("source %q", source)
		report.Admissions += s.admitted
		report.Steps += s.steps
		report.Faults["faults"] += s.faulted
		var lines strings.Builder
		if err := s.kubelet.History.History().Write(io.MultiWriter(events, &lines)); err != nil {
			t.Fatal(err)
		}
		report.Events = append(report.Events, strings.Split(lines.String(), "\n")...)
		if report.Violation != "" {
			break
		}
	}
	report.Sum = events.Sum64()
	return report
}

// TestFaultsHeal: whatever has happened before, with all sources back the coordinator is right again: nothing
// is remembered that the next look at the kubelet's records does not mend.
func TestFaultsHeal(t *testing.T) {
	each := len(everySource) * runSteps / 2
	seeds.Each(t, admissions, each, nil, func(t *testing.T, seed uint64) *seeds.Report {
		t.Helper()
		return simulateAll(t, seed, math.MaxInt)
	})
}

// TestStormIsDeterministic: a simulation repeats itself to the byte, so that a seed reproduces a finding.
func TestStormIsDeterministic(t *testing.T) {
	t.Parallel()
	seeds.Repeat(t, 1, func(t *testing.T, seed uint64) *seeds.Report {
		t.Helper()
		return simulateAll(t, seed, 40)
	})
}
