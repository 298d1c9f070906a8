// SPDX-License-Identifier: Apache-2.0

package seeds

import (
	"fmt"
	"testing"
)

// Condition is a circumstance that comes about once in a cycle of a simulation, in turn with the others.
type Condition struct {
	Name string
	// Known is the fault that breaks a promise under the condition, "" for none. Such a condition comes about
	// in runs of its own alone, until the fault is mended.
	Known string
	// Breaks is the promise that the known fault breaks.
	Breaks string
	Within int // seeds of a run, of which one has it; 0 for two
}

// Deal returns the condition of a cycle of a seed: the one with a name or, without such a condition, those
// without a known fault in turn.
func Deal[C any](all []C, of func(C) Condition, only string, seed uint64, cycle int) (dealt C) {
	var ordinary []C
	for _, c := range all {
		if of(c).Name == only {
			return c
		}
		if of(c).Known == "" {
			ordinary = append(ordinary, c)
		}
	}
	return ordinary[(seed+uint64(cycle))%uint64(len(ordinary))]
}

// knownSeeds is the number of seeds within which a known fault has to break its promise.
const knownSeeds = 6

// Known runs seeds under each condition with a known fault until the promise is broken. It fails if no seed
// breaks the promise: the fault is mended, and its mark has to go.
func Known(t *testing.T, all []Condition, run func(t *testing.T, seed uint64, name string) *Report) {
	t.Helper()
	for _, c := range all {
		if c.Known == "" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			var reports []*Report
			for seed := range uint64(knownSeeds) {
				report := run(t, seed, c.Name)
				if reports = append(reports, report); report.Violation != "" {
					break
				}
			}
			if err := c.judge(reports); err != nil {
				t.Fatal(err)
			}
			t.Logf("known fault: %s: %s", c.Known, reports[len(reports)-1].Violation)
		})
	}
}

// judge returns an error unless the promise was broken, in the last of the runs, after the condition had come
// about.
func (c Condition) judge(runs []*Report) error {
	met := 0
	for _, report := range runs {
		met += report.Faults[c.Name]
	}
	switch last := runs[len(runs)-1]; {
	case met == 0 && last.Violation == "":
		return fmt.Errorf("in no seed %s", c.Name)
	case last.Violation == "":
		return fmt.Errorf("no promise is broken: remove the mark %q", c.Known)
	case last.Faults[c.Name] == 0:
		return fmt.Errorf("a promise is broken before %s:\n%s", c.Name, last)
	case last.Breaks() != c.Breaks:
		return fmt.Errorf("%s breaks another promise than %q:\n%s", c.Name, c.Breaks, last)
	default:
		return nil
	}
}
