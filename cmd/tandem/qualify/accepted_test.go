// SPDX-License-Identifier: Apache-2.0

package qualify_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/qualify"
	"github.com/tandem-k8s/tandem/test/machines"
)

// TestAcceptedReports: what an accepted report proved still holds. This version judges the evidence as the
// version that wrote the report did: the same plans, on the same NUMA nodes, and no part is worse.
func TestAcceptedReports(t *testing.T) {
	t.Parallel()
	names := append(machines.Hardware(), machines.Emulated()...)
	if len(names) == 0 {
		t.Error("there is no report")
	}
	for _, name := range names {
		text, err := machines.Report(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := qualify.Read(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		accepted := slices.Clone(r.Results)
		if err := r.Judge(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(accepted) != len(r.Results) {
			t.Errorf("%s: %d parts, want %d", name, len(accepted), len(r.Results))
			continue
		}
		for i, now := range r.Results {
			if before := accepted[i]; now.Part != before.Part || now.Verdict != before.Verdict {
				t.Errorf("%s: %s was %s, and %s is %s: %q", name, before.Part, before.Verdict, now.Part, now.Verdict,
					now.Details)
			}
			if now.Verdict == "failed" {
				t.Errorf("%s: a report with a failed part was accepted: %s %q", name, now.Part, now.Details)
			}
		}
	}
}
