// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// Default number of admissions of TestDriver, and number of steps of a seed; about 55 of 100 are admissions.
const (
	admissions = 180
	runSteps   = 5 * (stormSteps + calmSteps)
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // client-go's handler waits by the time of the last error of all bubbles
	goleak.VerifyTestMain(m)
}

// simulate runs a seed in a bubble.
func simulate(t *testing.T, seed uint64, steps int) (report *seeds.Report) {
	t.Helper()
	seeds.Bubble(t, func(dir string) (err error) {
		report, err = Run(dir, seed, OptionsOf(seed), steps, seeds.Log())
		return err
	})
	return report
}

// TestDriver: in every weather and in the calm after every storm, the driver keeps its promises.
func TestDriver(t *testing.T) {
	seeds.Each(t, admissions, runSteps*6/10, conditionsOf(), func(t *testing.T, seed uint64) *seeds.Report {
		t.Helper()
		return simulate(t, seed, runSteps)
	})
}

// TestKnownFaults: under the conditions with a known fault a promise is broken, until the fault is mended.
func TestKnownFaults(t *testing.T) {
	seeds.Known(t, conditionsOf(), func(t *testing.T, seed uint64, name string) (report *seeds.Report) {
		t.Helper()
		options := OptionsOf(seed)
		options.Condition, options.Migrated = name, true
		seeds.Bubble(t, func(dir string) (err error) {
			report, err = Run(dir, seed, options, runSteps, seeds.Log())
			return err
		})
		return report
	})
}

// TestSeedRepeatsItself: two runs of a seed are equal to the byte.
func TestSeedRepeatsItself(t *testing.T) {
	t.Parallel()
	seeds.Repeat(t, 4, func(t *testing.T, seed uint64) *seeds.Report {
		t.Helper()
		return simulate(t, seed, 40)
	})
}
