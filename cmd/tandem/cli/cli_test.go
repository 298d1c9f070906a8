// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/version"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	var d struct {
		Version V1 `json:"version"`
	}
	if text, err := json.Marshal(d); err != nil || string(text) != `{"version":1}` {
		t.Errorf("writes %s, %v", text, err)
	}
	for text, known := range map[string]bool{`{"version":1}`: true, `{}`: true, `{"version":2}`: false} {
		if err := json.Unmarshal([]byte(text), &d); (err == nil) != known {
			t.Errorf("reads %s: %v", text, err)
		}
	}
}

func TestBuild(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-11-24T12:00:00+02:00"},
	}}
	for _, c := range []struct {
		info         *debug.BuildInfo
		commit, date string
	}{
		{info, "0123456789abcdef", "2026-11-24T10:00:00Z"}, {nil, "unknown", "unknown"},
	} {
		want := fmt.Sprintf("tandem %s\ncommit    %s\ndate      %s\ngo        %s\nplatform  %s/%s\n",
			version.Of(c.info), c.commit, c.date, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		if diff := cmp.Diff(want, newBuild("tandem", c.info).Table().String()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"mlx5_0":               "mlx5_0",
		"größe 8 › 9 日本":       "größe 8 › 9 日本",
		"\x1b]0;owned\x07":     `\u001b]0;owned\u0007`,
		"a\nb\tc\rd\x00\x7f":   `a\u000ab\u0009c\u000dd\u0000\u007f`,
		"\u009b2J\u202e\ufeff": `\u009b2J\u202e\ufeff`,
		"\U000e0001\ufffe":     `\udb40\udc01\ufffe`,
		"a\xffb\x9b":           "a\ufffdb\ufffd",
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// TestWriter: lines stay lines, and a JSON document keeps its value.
func TestWriter(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := NewPrintableWriter(&out)
	text := "a\tb\n\x1b[2J\n"
	if n, err := fmt.Fprint(w, text); n != len(text) || err != nil || out.String() != "a\tb\n\\u001b[2J\n" {
		t.Errorf("wrote %d bytes, %v: %q", n, err, out.String())
	}
	out.Reset()
	names := []string{"\x7f\u009b\u202e\U000e0001 <&>", "mlx5_0"}
	if err := json.NewEncoder(w).Encode(names); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got[0] != names[0] || got[1] != names[1] {
		t.Errorf("%s is %q, %v", out.Bytes(), got, err)
	}
	if bytes.ContainsAny(out.Bytes(), "\x7f\u009b\u202e") {
		t.Errorf("%q has control characters", out.Bytes())
	}
	out.Reset()
	if w.WriteControl("\r"); out.String() != "\r" {
		t.Errorf("a sequence of its own is %q", out.String())
	}
	if _, ok := w.Terminal(); ok {
		t.Error("a buffer is no terminal")
	}
}

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
