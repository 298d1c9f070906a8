// SPDX-License-Identifier: Apache-2.0

// Package finding defines a finding of tandem doctor, and the words that its sentences share.
package finding

import "fmt"

// Severity says how much a finding matters.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // pods are refused, or no pair is on one switch
	Warning Severity = "warning" // some pods, some devices or some of the speed are lost
	Unknown Severity = "unknown" // the file or socket that would tell could not be read
)

// Finding is an obstacle between a node and pairs on one switch.
type Finding struct {
	ID       string   `json:"id"` // the check, as in "topology-policy"
	Severity Severity `json:"severity"`
	Summary  string   `json:"summary"` // one sentence
	Evidence []string `json:"evidence"`
	Why      string   `json:"why"`
	Fix      []string `json:"fix"` // commands, or lines of a configuration
}

// Check judges facts, and nothing besides them.
type Check[Facts any] func(Facts) []Finding

// Judge runs checks on facts, in their order.
func Judge[Facts any](facts Facts, checks ...Check[Facts]) (findings []Finding) {
	for _, check := range checks {
		findings = append(findings, check(facts)...)
	}
	return findings
}

// When returns a finding if a condition holds.
func When(found bool, f Finding) []Finding {
	if !found {
		return nil
	}
	return []Finding{f}
}

// Of returns a finding with a list as its evidence, if the list is not empty.
func Of(list []string, f Finding) []Finding {
	f.Evidence = list
	return When(len(list) > 0, f)
}

// OfSome returns a finding with a few elements of a list as its evidence, if the list is not empty.
func OfSome(list []string, f Finding) []Finding { return Of(Some(list), f) }

// Some returns a few elements of a long list, and the number of the others.
func Some(list []string) []string {
	const few = 4
	if len(list) <= few+1 {
		return list
	}
	return append(append([]string{}, list[:few]...), fmt.Sprintf("and %d more", len(list)-few))
}
