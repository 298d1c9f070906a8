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
	Remark   string      `json:"remark,omitempty"` // no finding: an unknown number, and its usual value
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
		out.WriteString("Nothing stands between this node and GPUs and VFs on the same switch.\n")
		return out.Bytes()
	}
	fmt.Fprintf(&out, "%d found: errors %d, warnings %d, unknown %d\n", len(findings), counts[Error],
		counts[Warning], counts[Unknown])
	return out.Bytes()
}
