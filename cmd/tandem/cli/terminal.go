// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
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

// colour is a control sequence for the colour of the following text.
type colour string

// The palette: the colours of the terminal's own theme.
const (
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"
	red    colour = "\x1b[31m"
	none   colour = "\x1b[0m"
)

// verdicts are regular expressions for the words of an output that judge; "" stands for no word. Of a match
// the first group that took part has the colour, or without one the whole match. Colour is never the only
// carrier of a verdict.
type verdicts struct{ Good, Doubtful, Bad string }

// Distances of a pair on one switch or C2C link, and of others: in the third column of a table of pairs,
// and after a number of pairs. Names of resources and netdevs can contain the same words.
const (
	near = `(?:^ *\S+  +\S+  +|\b\d+ )(PIX|PXB|C2C)\b`
	far  = `(?:^ *\S+  +\S+  +|\b\d+ )(PHB|NODE|SYS|UNK)\b`
)

// commandVerdicts are the words of each command's output that judge. A name of a pod, resource or device is
// none of the words: a pattern includes the words, spaces or punctuation around the word.
var commandVerdicts = map[string]verdicts{
	"doctor": {Good: `^No problem\b`, Doubtful: `^(?:WARNING|UNKNOWN)\b`, Bad: `^ERROR\b`},
	"plan": {
		Good: near, Doubtful: far + `|^note:`, Bad: `\bthe kubelet rejects this request\b`,
	},
	"verify": {
		Good: near + `|^verified\b|^\d+  .*?  (ok)\b`, Doubtful: far,
		Bad: `^not verified\b|^\d+  .*?  (slow|failed)\b`,
	},
	"status": {
		Good: `; kubelet (up)$`,
		Doubtful: `^(?:DEGRADED|STALE|NOT ENFORCED|HEALTH)\b|\bNOT REGISTERED\b|\((degraded): ` +
			`|\b(degraded): kubectl `,
		Bad: `^KUBELET DOWN\b|\bNO ANSWER\b|\bkubelet down\b|^HEALTH \d+ devices? of \S+ (failed): |\((failed): ` +
			`|\(\d+ \w+ (unhealthy)\)|  (?:allocated, )?(unhealthy)(?: |$)`,
	},
	"qualify": {
		Good: `^\w+ +(passed)\b`, Doubtful: `^\w+ +(incomplete)\b`, Bad: `^\w+ +(failed)\b`,
	},
	"explain": {
		Good: near, Doubtful: far + `|\bis degraded\b`, Bad: `\bwas (?:refused|rejected)\b|  (refused)(?:: |  )`,
	},
}

// span is a part of a text with a colour.
type span struct {
	begin, end int
	colour     colour
}

// palette are the colours of verdicts.
var palette = []colour{red, yellow, green}

// shades is the first of the runes that stand for the ASCII characters of coloured words, utf8.RuneSelf for
// each colour of the palette. The runes are of a private use area, which printable text does not contain.
const shades = 0xF0000

// shadeWords replaces the characters of the words that judge by runes of their colours: each takes the room
// of the character, and keeps its colour wherever the word is moved.
func (v verdicts) shadeWords(text []byte) []byte {
	var out strings.Builder
	begin := 0
	for _, part := range v.findSpans(text) {
		out.Write(text[begin:part.begin])
		first := shades + utf8.RuneSelf*slices.Index(palette, part.colour)
		out.WriteString(strings.Map(func(r rune) rune {
			if r == ' ' || r >= utf8.RuneSelf {
				return r
			}
			return rune(first) + r
		}, string(text[part.begin:part.end])))
		begin = part.end
	}
	out.Write(text[begin:])
	return []byte(out.String())
}

// colourOf returns the colour of a rune of a shaded text, "" for none, and the character.
func colourOf(r rune) (of colour, character rune) {
	if i := int(r-shades) / utf8.RuneSelf; r >= shades && i < len(palette) {
		return palette[i], (r - shades) % utf8.RuneSelf
	}
	return "", r
}

// run is a part of a text in one colour, "" for none.
type run struct {
	colour colour
	text   string
}

// splitRuns returns the parts of a shaded text. A space between two words of one colour has the colour too.
func splitRuns(shaded []byte) (parts []run) {
	runes := []rune(string(shaded))
	var colours []colour
	for i, r := range runes {
		of, character := colourOf(r)
		if r == ' ' && 0 < i && i+1 < len(runes) {
			after, _ := colourOf(runes[i+1])
			if before := colours[i-1]; before == after {
				of = before
			}
		}
		colours, runes[i] = append(colours, of), character
	}
	for begin, end := 0, 0; begin < len(runes); begin = end {
		for end < len(runes) && colours[end] == colours[begin] {
			end++
		}
		parts = append(parts, run{colours[begin], string(runes[begin:end])})
	}
	return parts
}

// findSpans returns the coloured parts of a text, in order and without overlaps.
func (v verdicts) findSpans(text []byte) []span {
	var all []span
	for _, of := range []struct {
		pattern string
		colour  colour
	}{{v.Bad, red}, {v.Doubtful, yellow}, {v.Good, green}} {
		if of.pattern == "" {
			continue
		}
		for _, match := range regexp.MustCompile("(?m)"+of.pattern).FindAllSubmatchIndex(text, -1) {
			for len(match) > 2 && match[2] < 0 { // a group of another alternative
				match = slices.Delete(match, 2, 4)
			}
			part := match[len(match)-2:]
			if len(match) > 2 {
				part = match[2:4]
			}
			all = append(all, span{part[0], part[1], of.colour})
		}
	}
	slices.SortStableFunc(all, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
	end := 0
	return slices.DeleteFunc(all, func(s span) bool {
		if s.begin < end {
			return true
		}
		end = s.end
		return false
	})
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
