// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/internal/printable"
)

var verdicts = Verdicts{Good: `^ok\b|: (fine)$`, Doubtful: `^WARNING\b`, Bad: `^ERROR\b|^WARNING ERROR`}

// TestShow: verdicts have colours, and foreign text has none.
func TestShow(t *testing.T) {
	t.Parallel()
	const text = "ERROR one\nWARNING ERROR\nok: fine\nnot ok \x1b[31m\n"
	const plain = "ERROR one\nWARNING ERROR\nok: fine\nnot ok \\u001b[31m\n"
	show := func(colour bool, verdicts Verdicts) string {
		var out bytes.Buffer
		screen := Screen{Out: printable.NewWriter(&out), Colour: colour}
		if err := screen.Show([]byte(text), verdicts); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	const want = "\x1b[31mERROR\x1b[0m one\n\x1b[31mWARNING ERROR\x1b[0m\n" +
		"\x1b[32mok\x1b[0m: \x1b[32mfine\x1b[0m\n" +
		"not ok \\u001b[31m\n"
	if diff := cmp.Diff(want, show(true, verdicts)); diff != "" {
		t.Error(diff)
	}
	for name, got := range map[string]string{
		"without colour": show(false, verdicts), "without verdicts": show(true, Verdicts{}),
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
	words := Verdicts{Good: `\b(?:ok|b|c|d)\b`}
	var plain, coloured bytes.Buffer
	for out, colour := range map[*bytes.Buffer]bool{&plain: false, &coloured: true} {
		s := Screen{Out: printable.NewWriter(out), Width: 14, Colour: colour}
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

func TestColoured(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode       string
		isTerminal bool
		env        map[string]string
		want       bool
	}{
		{Auto, true, map[string]string{"TERM": "xterm"}, true},
		{Auto, true, map[string]string{"NO_COLOR": ""}, true},
		{Auto, true, map[string]string{"NO_COLOR": "0"}, false},
		{Auto, true, map[string]string{"TERM": "dumb"}, false},
		{Auto, false, nil, false},
		{Always, false, nil, true},
		{Always, false, map[string]string{"NO_COLOR": "1"}, true},
		{Never, true, nil, false},
	} {
		got := coloured(c.mode, c.isTerminal, func(name string) string { return c.env[name] })
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
		&bytes.Buffer{}, printable.NewWriter(&bytes.Buffer{}), printable.NewWriter(null),
	} {
		if s := NewScreen(w, Auto, noEnv); s.Width != 0 || s.Colour {
			t.Errorf("%T: %+v", w, s)
		}
	}
}
