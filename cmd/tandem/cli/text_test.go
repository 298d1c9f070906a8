// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// newText returns a text of lines, and of rows whose cells are separated by tabs. The text between slashes in
// a cell is bad.
func newText(source string) *Text {
	var text Text
	for line := range strings.Lines(source) {
		var cells []any
		for cell := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), "\t") {
			var parts []any
			for i, part := range strings.Split(cell, "/") {
				parts = append(parts, []Verdict{"", Bad}[i%2].Of(part))
			}
			cells = append(cells, NewCell(parts...))
		}
		if len(cells) > 1 {
			text.Row(cells...)
		} else {
			text.Line(cells...)
		}
	}
	return &text
}

const nodes = "2 of 2 nodes answer\n\nNODE\tMODE\tNOTES\tVERSION\n" +
	"gpu-0\tdevice-plugin\tteam.train-0 degraded: kubectl explain it\tv1\ngpu-1\tdra\t-\tv1\n\n" +
	"another line of text that is longer than the terminal\n"

// TestLayOut: the widest column of free text gets narrower, the others stay; lines break between words.
func TestLayOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		width      int
		want       string
	}{
		{"any length", nodes, 0, `2 of 2 nodes answer

NODE   MODE           NOTES                                      VERSION
gpu-0  device-plugin  team.train-0 degraded: kubectl explain it  v1
gpu-1  dra            -                                          v1

another line of text that is longer than the terminal
`},
		{"one column", nodes, 53, `2 of 2 nodes answer

NODE   MODE           NOTES                   VERSION
gpu-0  device-plugin  team.train-0 degraded:  v1
                      kubectl explain it
gpu-1  dra            -                       v1

another line of text that is longer than the terminal
`},
		{"two columns, and an indented table",
			"   SWITCH\tHELD BY\tWORDS\n   00\tns.one ns.two ns.three\ta b c d e f g h\n", 30,
			`   SWITCH  HELD BY   WORDS
   00      ns.one    a b c d e
           ns.two    f g h
           ns.three
`},
		{"too narrow for the words", "NAME\tWORDS\na\taaaaaaaaaaaaaaaaaaaa b\n", 20, `NAME  WORDS
a
      aaaaaaaaaaaaaaaaaaaa
      b
`},
		{"a table ends at a line", "NAME\tWORDS\na\tb c d e\nnote: the table ends\nLONG NAME\tx\n", 12, `NAME  WORDS
a     b c d
      e
note: the
  table ends
LONG NAME  x
`},
		{"rows of several lengths", "a\tb\tc\n" + "a\ta long last cell\naa\t\tcc c c c\n", 12, `a   b  c
a   a long
    last
    cell
aa     cc c
       c c
`},
		{"empty cells", "a\t\t\nb\tc\t\n", 0, "a\nb  c\n"},
		{"lines", "free 3, VFs free 25; kubelet up\nDEGRADED: a-word-longer-than-the-terminal b\n", 24,
			`free 3, VFs free 25;
  kubelet up
DEGRADED:
  a-word-longer-than-the-terminal
  b
`},
		{"a line with columns", "no   word word word\n", 12, "no   word\n     word\n     word\n"},
		{"a line that fits", "08:00.0  a b c d e f\n", 20, "08:00.0  a b c d e f\n"},
	} {
		got := joinLines(newText(c.text).layOut(c.width))
		if diff := cmp.Diff(strings.Split(c.want, "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestParts: parts keep their verdicts in cells of cells, in lists, and in a program that reads the colours
// of another; a foreign character is an escape.
func TestParts(t *testing.T) {
	t.Parallel()
	var text, read Text
	text.Row("NAME", "STATE")
	up, down := NewCell("a ", Good.Of("up")), NewCell(NewCell("b "), Bad.Of("down\n\x1b[31m"))
	text.Row(7, JoinCells([]any{up, down}, ", "))
	fmt.Fprint(&read, show(t, screen{colour: true}, &text))
	const want = "NAME  STATE\n7     a up, b down\\u000a\\u001b[31m\n"
	if text.String() != want || read.String() != want {
		t.Errorf("%q, read as %q, want %q", text.String(), read.String(), want)
	}
	line := Cell{{}, {Text: "7     a "}, {"up", Good}, {Text: ", b "}, {`down\u000a\u001b[31m`, Bad}}
	if diff := cmp.Diff(line, read.layOut(0)[1]); diff != "" {
		t.Error(diff)
	}
}

// TestColoursAtAnyWidth: the words of a verdict keep their colours where a narrow terminal breaks the line
// within the verdict, or moves the verdict within its table; colours take no room.
func TestColoursAtAnyWidth(t *testing.T) {
	t.Parallel()
	text := newText("one line; kubelet /up/\n/KUBELET DOWN/: a b c\n\n" +
		"NAME\tNOTES\tOTHER\na\t/NO ANSWER/: it is not up\t/NO ANSWER/\n")
	coloured := regexp.MustCompile(`\x1b\[31m(.*?)\x1b\[0m`)
	want := []string{"ANSWER", "ANSWER", "DOWN", "KUBELET", "NO", "NO", "up"}
	for width := range 60 {
		shown := show(t, screen{width: width, colour: true}, text)
		var got []string
		for _, match := range coloured.FindAllStringSubmatch(shown, -1) {
			got = append(got, strings.Fields(match[1])...)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("width %d (-want +got):\n%s\n%s", width, diff, shown)
		}
		plain := show(t, screen{width: width}, text)
		if diff := cmp.Diff(plain, coloured.ReplaceAllString(shown, "$1")); diff != "" {
			t.Errorf("width %d (-plain +coloured):\n%s", width, diff)
		}
	}
}

// FuzzFold: folding loses and invents no word, ends, and leaves no line too long that a break could shorten.
func FuzzFold(f *testing.F) {
	f.Add("a line of words\n", uint8(4))
	f.Add("NAME\tWORDS OF IT\tMORE\na\tb c d\te f\nlong\tg\th\n", uint8(16))
	f.Add("a\tb\tc\na\tb b b long long\n", uint8(9))
	f.Add("000\t00000   \t0000\n", uint8(16))
	f.Add("  indented  cells  é ü\n\n", uint8(1))
	f.Fuzz(func(t *testing.T, source string, width uint8) {
		text := newText(source)
		plain, got := text.String(), joinLines(text.layOut(int(width)))
		if strings.ContainsFunc(plain, func(r rune) bool {
			return r != ' ' && r != '\n' && len(strings.Fields(string(r))) == 0
		}) {
			return // other white space is no place of a break, and stays
		}
		before, after := strings.Fields(plain), strings.Fields(got) // a cell in several lines is between others
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

// TestLongLine: a line of a node, which may have 4 MiB, costs memory in proportion.
func TestLongLine(t *testing.T) {
	line := strings.Repeat("\x1b[31ma\x1b[0m a ", 1<<14)
	var text Text
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fmt.Fprintln(&text, line)
	text.layOut(80)
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > uint64(1000*len(line)) {
		t.Errorf("%d bytes for %d", bytes, len(line))
	}
}

// TestUnfinishedColour: what begins like a colour and has no end is escaped, as other control characters are.
func TestUnfinishedColour(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"a\x1b[31":   `a\u001b[31`,
		"a\x1b[0":    `a\u001b[0`,
		"a\x1b[31b":  `a\u001b[31b`,
		"a\x1b[":     `a\u001b[`,
		"a\x1b[m":    `a\u001b[m`,
		"\x1b[1;31m": `\u001b[1;31m`,
		"\x1b[31m":   "",
		"\x1b":       `\u001b`,
	} {
		var text Text
		fmt.Fprintln(&text, line)
		if got := text.String(); got != want+"\n" {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
