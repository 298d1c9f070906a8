// SPDX-License-Identifier: Apache-2.0

// Package printable keeps texts that others wrote from doing more than being read: device names of a
// recording, annotations, names of objects, and answers of other programs may hold escape sequences of
// terminals, and characters that change the order in which a text is shown.
package printable

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns a text with an escape in place of each character that is not graphic, as in
// "\u001b". It has no
// line breaks, so that a name cannot start a line of its own.
func Text(s string) string { return escape(s, "") }

// Lines is Text but for line breaks and tabs, which stay.
func Lines(s string) string { return escape(s, "\n\t") }

// escape writes UTF-16 units, as in JSON: a JSON document stays what it was, and in the text of XML
// an escape is characters that XML 1.0 allows (https://www.w3.org/TR/xml/#charsets).
func escape(s, but string) string {
	if clean(s, but) {
		return s
	}
	var out strings.Builder
	for _, r := range s { // what is no UTF-8 is U+FFFD
		switch high, low := utf16.EncodeRune(r); {
		case harmless(r, but):
			out.WriteRune(r)
		case high != unicode.ReplacementChar:
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

func clean(s, but string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !harmless(r, but) })
}

func harmless(r rune, but string) bool { return unicode.IsGraphic(r) || strings.ContainsRune(but, r) }

// Writer writes the lines of what it is given. A character has to be in one call of Write as a whole.
type Writer struct{ to io.Writer }

// NewWriter returns a Writer in front of another one.
func NewWriter(to io.Writer) *Writer { return &Writer{to} }

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.to, Lines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Control writes a sequence that controls the terminal. It is the program's own, never a text of others.
func (w *Writer) Control(sequence string) { _, _ = io.WriteString(w.to, sequence) } // as good as unseen

// Terminal returns the terminal that is written to, and whether it is one.
func (w *Writer) Terminal() (*os.File, bool) {
	file, ok := w.to.(*os.File)
	if !ok {
		return nil, false
	}
	info, err := file.Stat()
	return file, err == nil && info.Mode()&os.ModeCharDevice != 0
}
