// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"flag"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// Default number of admissions of TestNode, and number of steps of a seed; about 55 of 100 are admissions.
const (
	admissions = 4_000
	runSteps   = cyclesOfSeed * (stormSteps + calmSteps)
)

var only = flag.String("condition", "", "condition of all storms, in place of each in turn")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// simulate runs a seed in a bubble.
func simulate(t *testing.T, seed uint64, steps int) (report *seeds.Report) {
	t.Helper()
	options := OptionsOf(seed)
	options.Condition = *only
	return simulateOn(t, options, seed, steps)
}

// simulateOn runs a seed on a node with other options than the seed's.
func simulateOn(t *testing.T, options Options, seed uint64, steps int) (report *seeds.Report) {
	t.Helper()
	seeds.Bubble(t, func(dir string) (err error) {
		report, err = Run(dir, seed, options, steps, seeds.Log())
		return err
	})
	return report
}

// TestNode: in every weather and in the calm after every storm, a node keeps its promises.
func TestNode(t *testing.T) {
	t.Attr("parity", "all/preferred-deadline")
	isOnly := func(c condition) bool { return c.Name == *only }
	if *only != "" && !slices.ContainsFunc(conditions, isOnly) {
		t.Fatalf("-condition: no condition is called %q; their names are in conditions.go", *only)
	}
	conditions := conditionsOf()
	if *only != "" {
		conditions = nil
	}
	seeds.Each(t, admissions, runSteps*6/10, conditions, func(t *testing.T, seed uint64) *seeds.Report {
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
