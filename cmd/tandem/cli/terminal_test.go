// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var testWords = verdicts{Good: `^ok\b|: (fine)$`, Doubtful: `^WARNING\b`, Bad: `^ERROR\b|^WARNING ERROR`}

// TestShow: verdicts have colours, and foreign text has none.
func TestShow(t *testing.T) {
	t.Parallel()
	const text = "ERROR one\nWARNING ERROR\nok: fine\nnot ok \x1b[31m\n"
	const plain = "ERROR one\nWARNING ERROR\nok: fine\nnot ok \\u001b[31m\n"
	show := func(colour bool, words verdicts) string {
		var out bytes.Buffer
		screen := Screen{Out: NewPrintableWriter(&out), Colour: colour}
		if err := screen.Show([]byte(text), words); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	const want = "\x1b[31mERROR\x1b[0m one\n\x1b[31mWARNING ERROR\x1b[0m\n" +
		"\x1b[32mok\x1b[0m: \x1b[32mfine\x1b[0m\n" +
		"not ok \\u001b[31m\n"
	if diff := cmp.Diff(want, show(true, testWords)); diff != "" {
		t.Error(diff)
	}
	for name, got := range map[string]string{
		"without colour": show(false, testWords), "without verdicts": show(true, verdicts{}),
	} {
		if diff := cmp.Diff(plain, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestColoursTakeNoRoom: the text is folded as without colours.
func TestColoursTakeNoRoom(t *testing.T) {
	t.Parallel()
	const text = "NAME  STATE\na     ok b c d e f\n"
	words := verdicts{Good: `\b(?:ok|b|c|d)\b`}
	var plain, coloured bytes.Buffer
	for out, colour := range map[*bytes.Buffer]bool{&plain: false, &coloured: true} {
		s := Screen{Out: NewPrintableWriter(out), Width: 14, Colour: colour}
		if err := s.Show([]byte(text), words); err != nil {
			t.Fatal(err)
		}
	}
	stripped := strings.NewReplacer(string(green), "", string(none), "").Replace(coloured.String())
	if diff := cmp.Diff(plain.String(), stripped); diff != "" || coloured.Len() == plain.Len() {
		t.Errorf("%q\n%s", coloured.String(), diff)
	}
	if want := "NAME  STATE\na     ok b c d\n      e f\n"; plain.String() != want {
		t.Errorf("%q, want %q", plain.String(), want)
	}
}

// TestColoursAtAnyWidth: the words of a verdict keep their colours where a narrow terminal breaks the line
// within the verdict, or moves the verdict within its table.
func TestColoursAtAnyWidth(t *testing.T) {
	t.Parallel()
	const text = "one line; kubelet up\nKUBELET DOWN: a b c\n\n" +
		"NAME  NOTES                     OTHER\na     NO ANSWER: it is not up   NO ANSWER\n"
	words := verdicts{Good: `; kubelet (up)$`, Bad: `^KUBELET DOWN\b|\bNO ANSWER\b`}
	coloured := regexp.MustCompile(`\x1b\[3.m(.*?)\x1b\[0m`)
	want := []string{"ANSWER", "ANSWER", "DOWN", "KUBELET", "NO", "NO", "up"}
	for width := range 60 {
		var out bytes.Buffer
		s := Screen{Out: NewPrintableWriter(&out), Width: width, Colour: true}
		if err := s.Show([]byte(text), words); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, match := range coloured.FindAllStringSubmatch(out.String(), -1) {
			got = append(got, strings.Fields(match[1])...)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("width %d (-want +got):\n%s\n%s", width, diff, out.String())
		}
	}
}

// TestEscapesTakeRoom: a line is folded with the escapes of foreign characters, and no foreign character is a
// colour.
func TestEscapesTakeRoom(t *testing.T) {
	t.Parallel()
	const text = "foreign \x1b[31mred\U000F0065\n"
	const want = "foreign\n  \\u001b[31mred\\udb80\\udc65\n"
	for _, colour := range []bool{false, true} {
		var out bytes.Buffer
		s := Screen{Out: NewPrintableWriter(&out), Width: 24, Colour: colour}
		if err := s.Show([]byte(text), testWords); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("colour %t: %q, want %q", colour, out.String(), want)
		}
	}
}

func TestColoured(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode       string
		isTerminal bool
		env        map[string]string
		want       bool
	}{
		{auto, true, map[string]string{"TERM": "xterm"}, true},
		{auto, true, map[string]string{"NO_COLOR": ""}, true},
		{auto, true, map[string]string{"NO_COLOR": "0"}, false},
		{auto, true, map[string]string{"TERM": "dumb"}, false},
		{auto, false, nil, false},
		{always, false, nil, true},
		{always, false, map[string]string{"NO_COLOR": "1"}, true},
		{never, true, nil, false},
	} {
		got := hasColours(c.mode, c.isTerminal, func(name string) string { return c.env[name] })
		if got != c.want {
			t.Errorf("--color=%s, terminal %t, %v: %t", c.mode, c.isTerminal, c.env, got)
		}
	}
}

// TestNoTerminal: buffers and /dev/null have no width and no colours.
func TestNoTerminal(t *testing.T) {
	t.Parallel()
	noEnv := func(string) string { return "" }
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, w := range []io.Writer{
		&bytes.Buffer{}, NewPrintableWriter(&bytes.Buffer{}), NewPrintableWriter(null),
	} {
		if s := newScreen(w, auto, noEnv); s.Width != 0 || s.Colour {
			t.Errorf("%T: %+v", w, s)
		}
	}
}
