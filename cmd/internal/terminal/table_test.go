// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"strings"
	"testing"

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
		got := string(fold([]byte(c.text), c.width))
		if diff := cmp.Diff(strings.Split(c.want, "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
