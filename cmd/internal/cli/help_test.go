// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

// TestJoinLines: a paragraph is one line; lists and a command after a colon stay as they are.
func TestJoinLines(t *testing.T) {
	t.Parallel()
	const usage = "\n\nUsage:\n  x\n  y"
	for before, after := range map[string]string{
		"one\ntwo\n\nthree":   "one two\n\nthree",
		"of:\ncommand\nnext":  "of:\ncommand next",
		"of:\n  A\n  B\nnext": "of:\n  A\n  B\nnext",
	} {
		if got := joinLines(before + usage); got != after+usage {
			t.Errorf("%q: %q, want %q", before, got, after+usage)
		}
	}
}
