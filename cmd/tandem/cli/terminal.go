// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// Modes of colour, the values of --color.
const (
	auto   = "auto" // on a terminal, unless the environment forbids colour
	always = "always"
	never  = "never"
)

// hasColours reports whether output in a mode has colours. NO_COLOR is that of no-color.org.
func hasColours(mode string, isTerminal bool, env func(string) string) bool {
	if mode == auto {
		return isTerminal && env("NO_COLOR") == "" && env("TERM") != "dumb"
	}
	return mode == always
}

// Printable returns s with an escape such as "\u001b" in place of each character that is not graphic. Line
// breaks are escaped too, so that a name cannot start a line.
func Printable(s string) string { return escapeText(s, "") }

// PrintableLines is like [Printable], but keeps line breaks and tabs.
func PrintableLines(s string) string { return escapeText(s, "\n\t") }

// escapeText writes UTF-16 units as JSON does. A JSON document keeps its meaning, and in XML text an escape
// consists of characters that XML 1.0 allows (https://www.w3.org/TR/xml/#charsets).
func escapeText(s, but string) string {
	isForeign := func(r rune) bool { return !unicode.IsGraphic(r) && !strings.ContainsRune(but, r) }
	if utf8.ValidString(s) && !strings.ContainsFunc(s, isForeign) {
		return s
	}
	var out strings.Builder
	for _, r := range s { // invalid UTF-8 becomes U+FFFD
		switch high, low := utf16.EncodeRune(r); {
		case !isForeign(r):
			out.WriteRune(r)
		case high != unicode.ReplacementChar:
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// PrintableWriter writes its input by [PrintableLines]. Each call of Write must contain whole characters.
type PrintableWriter struct{ to io.Writer }

// NewPrintableWriter returns a Writer to to.
func NewPrintableWriter(to io.Writer) *PrintableWriter { return &PrintableWriter{to} }

// Write implements io.Writer.
func (w *PrintableWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.to, PrintableLines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteControl writes a terminal control sequence of the program itself, never foreign text.
func (w *PrintableWriter) WriteControl(sequence string) { _, _ = io.WriteString(w.to, sequence) } // as good as unseen

// Terminal returns the underlying terminal, and whether the output is a terminal.
func (w *PrintableWriter) Terminal() (*os.File, bool) {
	file, ok := w.to.(*os.File)
	if !ok {
		return nil, false
	}
	return file, term.IsTerminal(int(file.Fd()))
}
