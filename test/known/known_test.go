// SPDX-License-Identifier: Apache-2.0

package known

import (
	"errors"
	"os/exec"
	"regexp"
	"testing"
)

// TestFault: a test that fails with its fault is skipped.
func TestFault(t *testing.T) {
	marked := t.Run("fault", func(t *testing.T) {
		Fault(t, "this test shows how", "one and one are three")
		t.Error("one and one are three")
	})
	if !marked {
		t.Error("a test that fails with its known fault is reported")
	}
}

// TestJudge: a mark stands only for the failure that it names.
func TestJudge(t *testing.T) {
	failed := &exec.ExitError{}
	for name, c := range map[string]struct {
		output  string
		failure error
		stands  bool
	}{
		"the fault":       {"=== RUN   TestX\n    x_test.go:7: two owners\n--- FAIL: TestX", failed, true},
		"another failure": {"    x_test.go:7: open testdata: no such file\n--- FAIL: TestX", failed, false},
		"a name":          {"=== RUN   TestX/two owners\n    --- FAIL: TestX/two owners", failed, false},
		"out of time":     {"two owners\npanic: test timed out after 1m0s\n", failed, false},
		"passes":          {"PASS", nil, false},
		"skipped":         {"--- SKIP: TestX", nil, false},
		"no test":         {"testing: warning: no tests to run\nPASS", nil, false},
		"not started":     {"two owners", errors.New("fork: out of memory"), false},
	} {
		if err := judge(c.output, c.failure, regexp.MustCompile("two owners")); (err == nil) != c.stands {
			t.Errorf("%s: %v", name, err)
		}
	}
}
