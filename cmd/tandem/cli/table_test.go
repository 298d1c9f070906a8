// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

const nodes = `2 of 2 nodes answer

NODE   MODE           NOTES                                       VERSION
gpu-0  device-plugin  team/train-0 degraded: kubectl explain it   v1
gpu-1  dra            -                                           v1

another line of text that is longer than the terminal
`

// TestTables: the widest column of free text gets narrower, the others stay.
func TestTables(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		width      int
		want       string
	}{
		{"it fits", nodes, 80, nodes},
		{"one column", nodes, 53, `2 of 2 nodes answer

NODE   MODE           NOTES                   VERSION
gpu-0  device-plugin  team/train-0 degraded:  v1
                      kubectl explain it
gpu-1  dra            -                       v1

another line of text that is longer than the terminal
`},
		{"two columns, and an indented table", `   SWITCH  HELD BY                 WORDS
   00      ns/one ns/two ns/three  a b c d e f g h
`, 30, `   SWITCH  HELD BY   WORDS
   00      ns/one    a b c d e
           ns/two    f g h
           ns/three
`},
		{"too narrow for the words", `NAME  WORDS
a     aaaaaaaaaaaaaaaaaaaa b
`, 20, `NAME  WORDS
a
      aaaaaaaaaaaaaaaaaaaa
      b
`},
		{"a table ends at the first other line", `NAME  WORDS
a     b c d e
note: the table ends before this line
`, 12, `NAME  WORDS
a     b c d
      e
note: the
  table ends
  before
  this line
`},
	} {
		got := string(foldText([]byte(c.text), c.width))
		if diff := cmp.Diff(strings.Split(c.want, "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestFold(t *testing.T) {
	t.Parallel()
	const text = `GPUs free 3/8, VFs free 25/32; kubelet up

SWITCH  NUMA  OWNERS
0000:08:00.0  0  infer/one/main infer/two/main
0000:26:00.0  0  -
DEGRADED: a-word-that-is-longer-than-the-terminal-is-wide and another
`
	const want = `GPUs free 3/8, VFs free 25/32;
  kubelet up

SWITCH  NUMA  OWNERS
0000:08:00.0  0  infer/one/main
  infer/two/main
0000:26:00.0  0  -
DEGRADED:
  a-word-that-is-longer-than-the-terminal-is-wide
  and another
`
	if diff := cmp.Diff(want, string(foldText([]byte(text), 33))); diff != "" {
		t.Error(diff)
	}
	if got := string(foldText([]byte(text), 0)); got != text {
		t.Errorf("without a terminal: %q", got)
	}
	const cell = "0000:08:00.0  a/b c/d e/f\n"
	if got := string(foldText([]byte(cell), 29)); got != cell {
		t.Errorf("a line that fits: %q", got)
	}
	const hung = "no   word\n     word\n     word\n"
	if got := string(foldText([]byte("no   word word word\n"), 12)); got != hung {
		t.Errorf("a cell: %q, want %q", got, hung)
	}
}

// FuzzFold: folding loses and invents no word, ends, and leaves no line too long that a break could shorten.
func FuzzFold(f *testing.F) {
	f.Add("a line of words\n", uint8(4))
	f.Add("NAME  WORDS OF IT  MORE\na     b c d        e f\nlong  g              h\n", uint8(16))
	f.Add("  indented  cells  é ü\n\n", uint8(1))
	f.Fuzz(func(t *testing.T, text string, width uint8) {
		got := string(foldText([]byte(text), int(width)))
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
			return r != ' ' && r != '\n' && len(strings.Fields(string(r))) == 0
		}) {
			return // other white space is no place of a break, and stays
		}
		before, after := strings.Fields(text), strings.Fields(got) // a cell in several lines is between others
		slices.Sort(before)
		slices.Sort(after)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatal(diff)
		}
		if width == 0 {
			return
		}
		for line := range strings.Lines(got) {
			trimmed := strings.TrimRight(line, " \n")
			if utf8.RuneCountInString(trimmed) > int(width) && strings.Contains(strings.TrimLeft(trimmed, " "), " ") {
				t.Fatalf("%q is longer than %d", line, width)
			}
		}
	})
}
