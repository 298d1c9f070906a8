// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// Default number of admissions of TestNode, and number of steps of a seed; about 55 of 100 are admissions.
const (
	admissions = 4_000
	runSteps   = 20 * (stormSteps + calmSteps)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// simulate runs a seed in a bubble.
func simulate(t *testing.T, seed uint64, steps int) (report *seeds.Report) {
	t.Helper()
	seeds.Bubble(t, func(dir string) (err error) {
		report, err = Run(dir, seed, OptionsOf(seed), steps, seeds.Log())
		return err
	})
	return report
}

// TestNode: in every weather and in the calm after every storm, a node keeps its promises.
func TestNode(t *testing.T) {
	seeds.Each(t, admissions, runSteps*6/10, optionValues(), func(t *testing.T, seed uint64) *seeds.Report {
		t.Helper()
		report := simulate(t, seed, runSteps)
		if script, err := ParseScript(report.Script); err == nil && *shrinking && report.Violation != "" {
			report.Script = shrink(t, script).String()
		}
		return report
	})
}

// TestSeedRepeatsItself: two runs of a seed are equal to the byte.
func TestSeedRepeatsItself(t *testing.T) {
	t.Parallel()
	seeds.Repeat(t, 10, func(t *testing.T, seed uint64) *seeds.Report {
		t.Helper()
		return simulate(t, seed, 100)
	})
}
