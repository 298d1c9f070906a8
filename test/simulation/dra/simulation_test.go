// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// Default number of admissions of TestDriver, and numbers of cycles and steps of a seed; about 55 of 100
// steps are admissions.
const (
	admissions = 180
	cycles     = 5
	cycleSteps = stormSteps + calmSteps
	runSteps   = cycles * cycleSteps
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // client-go's handler waits by the time of the last error of all bubbles
	goleak.VerifyTestMain(m)
}

// simulate runs a seed in a bubble.
func simulate(t *testing.T, seed uint64, options Options, steps int) (report *seeds.Report) {
	t.Helper()
	seeds.Bubble(t, func(dir string) (err error) {
		report, err = Run(dir, seed, options, steps, seeds.Log())
		return err
	})
	return report
}

// TestDriver: in every weather and in the calm after every storm, the driver keeps its promises.
func TestDriver(t *testing.T) {
	seeds.Each(t, admissions, runSteps*6/10, nil, func(t *testing.T, seed uint64) *seeds.Report {
		t.Helper()
		return simulate(t, seed, OptionsOf(seed), runSteps)
	})
}

// TestConditions: under each condition, in every storm, the driver keeps its promises. With -short a seed has
// one storm.
func TestConditions(t *testing.T) {
	steps := runSteps
	if testing.Short() {
		steps = cycleSteps
	}
	for _, c := range conditions {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			met := 0
			for seed := uint64(0); met == 0 && seed < 6; seed++ {
				options := OptionsOf(seed)
				options.Condition, options.Migrated = c.Name, true
				report := simulate(t, seed, options, steps)
				if met += report.Faults[c.Name]; report.Violation != "" {
					t.Fatal(report)
				}
			}
			if met == 0 {
				t.Error("it does not come about")
			}
		})
	}
}

// TestSeedRepeatsItself: two runs of a seed are equal to the byte.
func TestSeedRepeatsItself(t *testing.T) {
	t.Parallel()
	seeds.Repeat(t, 4, func(t *testing.T, seed uint64) *seeds.Report {
		t.Helper()
		return simulate(t, seed, OptionsOf(seed), 40)
	})
}
