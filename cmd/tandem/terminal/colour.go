// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"cmp"
	"regexp"
	"slices"
)

// Modes of colour, the values of --color.
const (
	Auto   = "auto" // on a terminal, unless the environment forbids colour
	Always = "always"
	Never  = "never"
)

// coloured reports whether output in a mode has colours. NO_COLOR is that of no-color.org.
func coloured(mode string, isTerminal bool, env func(string) string) bool {
	if mode == Auto {
		return isTerminal && env("NO_COLOR") == "" && env("TERM") != "dumb"
	}
	return mode == Always
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

// Verdicts are regular expressions for the words of an output that judge; "" stands for no word. Of a match
// the first group that took part has the colour, or without one the whole match. Colour is never the only
// carrier of a verdict.
type Verdicts struct{ Good, Doubtful, Bad string }

// span is a part of a text with a colour.
type span struct {
	begin, end int
	colour     colour
}

// spans returns the coloured parts of a text, in order and without overlaps.
func (v Verdicts) spans(text []byte) []span {
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
