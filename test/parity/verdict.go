// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// States of rows.
const (
	pass    = "pass"    // all its tests passed
	failed  = "fail"    // a test failed
	skipped = "skipped" // none ran
	open    = "open"    // there is none
)

// verdict is the result of a row.
type verdict struct {
	row
	State string  `json:"state"`
	Tests []*test `json:"tests"`
}

// judge returns the verdict on every row that Tandem must or should fulfil.
func judge(rows []row, tests []*test) []verdict {
	verdicts := make([]verdict, 0, len(rows))
	for _, r := range rows {
		if r.Priority == could {
			continue
		}
		v := verdict{row: r, Tests: []*test{}}
		for _, t := range tests {
			if t.shows(r.Name) {
				v.Tests = append(v.Tests, t)
			}
		}
		v.State = state(v.Tests)
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// misnamed lists attributes of tests without a row of that name.
func misnamed(rows []row, tests []*test) (names []string) {
	for _, t := range tests {
		for _, name := range t.rows {
			if !slices.ContainsFunc(rows, func(r row) bool { return r.Name == name }) {
				names = append(names, fmt.Sprintf("%s (%s)", name, t.Name))
			}
		}
	}
	return names
}

func state(tests []*test) string {
	outcomes := map[string]int{}
	for _, t := range tests {
		outcomes[t.Outcome]++
	}
	switch {
	case len(tests) == 0:
		return open
	case outcomes["skip"] == len(tests):
		return skipped
	case outcomes["pass"]+outcomes["skip"] == len(tests):
		return pass
	default:
		return failed
	}
}

func writeTable(w io.Writer, verdicts []verdict) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "ROW\tPRIORITY\tSTATE\tSHOWN BY, OR WHY NOT\n")
	for _, v := range verdicts {
		for i, line := range v.because() {
			if i == 0 {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", v.Name, v.Priority, v.State, line)
			} else {
				fmt.Fprintf(t, "\t\t\t%s\n", line)
			}
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	fmt.Fprintln(w)
	for _, priority := range []string{must, should} {
		count := map[string]int{}
		for _, v := range verdicts {
			if v.Priority == priority {
				count[v.State]++
			}
		}
		var parts []string
		for _, state := range slices.Sorted(maps.Keys(count)) {
			parts = append(parts, fmt.Sprint(count[state], " ", state))
		}
		fmt.Fprintf(w, "%s: %s\n", priority, strings.Join(parts, ", "))
	}
	return nil
}

// because names the decisive tests, or the reason for their absence.
func (v verdict) because() []string {
	var lines []string
	for _, t := range v.Tests {
		switch {
		case t.Outcome == "skip":
			lines = append(lines, fmt.Sprintf("%s (skipped: %s)", t.Name, t.Said))
		case t.Outcome != "pass":
			lines = append(lines, t.Name+" (failed)")
		default:
			lines = append(lines, t.Name)
		}
	}
	if v.Reason != "" {
		lines = append(lines, v.Reason)
	}
	if len(lines) == 0 {
		lines = []string{"no test shows it"}
	}
	return lines
}

func writeJSON(w io.Writer, verdicts []verdict) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(verdicts); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
