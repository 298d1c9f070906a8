// SPDX-License-Identifier: Apache-2.0

package seeds

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Report is the result of a run.
type Report struct {
	Seed       uint64
	Of         string // the node, and numbers besides those below, for people
	Repeat     string // the command that repeats the run
	Steps      int    // until the end or the violation
	Admissions int
	Faults     map[string]int // by kind
	Sum        uint64         // of all events
	Violation  string         // the broken promise; "" for none
	Events     []string       // in order
	Script     string         // that repeats the violation; "" for none
}

// Breaks returns the broken promise; "" for none.
func (r *Report) Breaks() string {
	promise, _, _ := strings.Cut(r.Violation, ": ")
	return promise
}

// String returns the report for people, the same for the same seed.
func (r *Report) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d, %s: %d steps, %d admissions, events %016x", r.Seed, r.Of, r.Steps, r.Admissions,
		r.Sum)
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(&text, "\n  %6d  %s", r.Faults[kind], kind)
	}
	if r.Violation != "" {
		fmt.Fprintf(&text, "\nVIOLATION after %d steps, the shortest prefix that fails: %s\n", r.Steps, r.Violation)
		fmt.Fprintf(&text, "Repeat: %s\n%s", r.Repeat, &Story{lines: r.Events})
		if r.Script != "" {
			fmt.Fprintf(&text, "\nScript (-shrink shortens it):\n%s", r.Script)
		}
	}
	return text.String()
}
