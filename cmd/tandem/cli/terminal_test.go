// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// show returns what a screen shows of a text.
func show(t *testing.T, s screen, text *Text) string {
	t.Helper()
	var out bytes.Buffer
	s.out = NewPrintableWriter(&out)
	if err := s.show(text); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestShow: verdicts have colours, and foreign text has none. Lines are folded with the escapes of foreign
// characters.
func TestShow(t *testing.T) {
	t.Parallel()
	var text Text
	text.Line(Bad.Of("ERROR"), " one")
	text.Line(Good.Of("ok"), ": ", Doubtful.Of("fine"), Verdict("of a later version").Of("."))
	fmt.Fprintf(&text, "foreign \x1b[36mblue\U000F0065\n")
	const written = "foreign\n  \\u001b[36mblue\\udb80\\udc65\n"
	for colour, want := range map[bool]string{
		true:  "\x1b[31mERROR\x1b[0m one\n\x1b[32mok\x1b[0m: \x1b[33mfine\x1b[0m.\n" + written,
		false: "ERROR one\nok: fine.\n" + written,
	} {
		if diff := cmp.Diff(want, show(t, screen{width: 24, colour: colour}, &text)); diff != "" {
			t.Errorf("colour %t: %s", colour, diff)
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
		if s := newScreen(w, auto, noEnv); s.width != 0 || s.colour {
			t.Errorf("%T: %+v", w, s)
		}
	}
}
