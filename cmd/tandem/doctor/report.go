// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
)

// Finding is an obstacle between a node and pairs on one switch.
type Finding = finding.Finding

// Severity says how much a finding matters.
type Severity = finding.Severity

// The severities.
const (
	Error   = finding.Error
	Warning = finding.Warning
	Unknown = finding.Unknown
)

// Findings are all findings of a node, as -o json prints them.
type Findings struct {
	Version  document.V1 `json:"version"`
	Findings []Finding   `json:"findings"`
	// what could not be looked at, and what is to be expected of it, where that is no finding
	Remark string `json:"remark,omitempty"`
}

// Report is the text of findings for people.
func Report(findings []Finding) []byte {
	var out bytes.Buffer
	counts := map[Severity]int{}
	for _, f := range findings {
		counts[f.Severity]++
		fmt.Fprintf(&out, "%s %s: %s\n", strings.ToUpper(string(f.Severity)), f.ID, f.Summary)
		for _, seen := range f.Evidence {
			fmt.Fprintf(&out, "  seen  %s\n", seen)
		}
		fmt.Fprintf(&out, "  why   %s\n", f.Why)
		for _, fix := range f.Fix {
			fmt.Fprintf(&out, "  fix   %s\n", fix)
		}
		out.WriteByte('\n')
	}
	if len(findings) == 0 {
		out.WriteString("No problem prevents GPUs and VFs on the same switch on this node.\n")
		return out.Bytes()
	}
	fmt.Fprintf(&out, "%d found: errors %d, warnings %d, unknown %d\n", len(findings), counts[Error],
		counts[Warning], counts[Unknown])
	return out.Bytes()
}
