// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
)

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
