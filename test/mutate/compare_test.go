// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// results returns a report on a package with n mutations of a function, of which the first are dead.
func results(function string, n, died int) *report {
	var all []*site
	for i := range n {
		one := result{identity: identity{Package: "p", Function: function, Text: fmt.Sprint(i)}, Outcome: survived}
		if i < died {
			one.Outcome, one.By = dead, "p TestP"
		}
		all = append(all, &site{result: one})
	}
	r := &report{}
	r.put("p", n, all)
	return r
}

// TestCompare: a package whose share got worse by more than noise is an error.
func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		before, now *report
		worse       bool
	}{
		"the same":                       {results("F", 50, 40), results("F", 50, 40), false},
		"better":                         {results("F", 50, 40), results("F", 50, 50), false},
		"four of the same mutations":     {results("F", 50, 40), results("F", 50, 36), false},
		"five of the same mutations":     {results("F", 50, 40), results("F", 50, 35), true},
		"five of other mutations":        {results("F", 50, 40), results("G", 50, 35), false},
		"half of other mutations":        {results("F", 50, 40), results("G", 50, 20), true},
		"a package without earlier ones": {&report{}, results("F", 50, 0), false},
	} {
		if err := compare(io.Discard, c.before, c.now); (err != nil) != c.worse {
			t.Errorf("%s: %v", name, err)
		}
	}
	var out strings.Builder
	_ = compare(&out, results("F", 9, 9), results("F", 9, 8))
	lines := strings.Count(out.String(), "\n")
	if !strings.Contains(out.String(), "no longer dead, but survived") || lines != 1 {
		t.Errorf("wrote %q", &out)
	}
}
