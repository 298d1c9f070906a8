// SPDX-License-Identifier: Apache-2.0

package spelling

import "testing"

func TestQuestion(t *testing.T) {
	t.Parallel()
	commands := []string{"topo", "record", "plan", "play", "status", "explain", "verify", "doctor", "simulate"}
	for _, c := range []struct {
		word  string
		known []string
		want  string
	}{
		{"tpoo", commands, " (did you mean topo?)"},
		{"stauts", commands, " (did you mean status?)"},
		{"exp", commands, " (did you mean explain?)"},
		{"Doctor", commands, " (did you mean doctor?)"},
		{"plax", commands, " (did you mean plan or play?)"},
		{"guess", commands, ""},
		{"x", commands, ""},
		{"x", []string{"f"}, ""},
		{"", commands, ""},
		{"0000:11:00.9", []string{"0000:11:00.1", "0000:11:00.2", "0000:11:00.3", "0000:11:00.4"}, ""},
		{"tandem-namspace", []string{"namespace", "tandem-namespace"}, " (did you mean tandem-namespace?)"},
	} {
		if got := Question(c.word, c.known); got != c.want {
			t.Errorf("%q: %q, want %q", c.word, got, c.want)
		}
	}
}

func TestEdits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"ab", "ba", 1},
		{"isRDAM", "isRDMA", 1}, {"ca", "abc", 3},
	} {
		if got := countEdits(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
