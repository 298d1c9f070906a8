// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"slices"
	"strings"
	"testing"
)

// TestWorkflowHasEveryPart: the workflow runs each part of "make check" and each other part of .ci/run, but
// for e2e, once.
func TestWorkflowHasEveryPart(t *testing.T) {
	t.Parallel()
	checks := strings.Fields(match(t, "Makefile", `\nCHECKS := (.*)\n`))
	var want []string
	for part := range strings.FieldsSeq(match(t, ".ci/run", `\nparts=\(([a-z0-9 -]+)\)\n`)) {
		switch part {
		case "check":
			want = append(want, checks...)
		case "e2e":
		default:
			want = append(want, part)
		}
	}
	jobs := match(t, ".github/workflows/ci.yml", `(?s)\n +part:\n(( +- [a-z0-9 -]+\n)+)`)
	got := strings.Fields(strings.ReplaceAll(jobs, "- ", " "))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the workflow runs %v, want %v", got, want)
	}
}
