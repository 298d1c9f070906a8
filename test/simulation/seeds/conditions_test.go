// SPDX-License-Identifier: Apache-2.0

package seeds

import "testing"

// TestJudgeOfKnownFaults: a mark of a condition stands only for a breach of its promise under the condition.
func TestJudgeOfKnownFaults(t *testing.T) {
	c := Condition{Name: "the file is lost", Known: "nobody looks", Breaks: "two owners"}
	met := map[string]int{c.Name: 1}
	for name, of := range map[string]struct {
		runs   []*Report
		stands bool
	}{
		"the fault":         {[]*Report{{Faults: met, Violation: "two owners: a and b"}}, true},
		"in a later seed":   {[]*Report{{}, {Faults: met, Violation: "two owners: a and b"}}, true},
		"without condition": {[]*Report{{Violation: "two owners: a and b"}}, false},
		"in another seed":   {[]*Report{{Faults: met}, {Violation: "two owners: a and b"}}, false},
		"another promise":   {[]*Report{{Faults: met, Violation: "too late: a"}}, false},
		"mended":            {[]*Report{{Faults: met}, {Faults: met}}, false},
		"never":             {[]*Report{{}, {}}, false},
	} {
		if err := c.judge(of.runs); (err == nil) != of.stands {
			t.Errorf("%s: %v", name, err)
		}
	}
}
