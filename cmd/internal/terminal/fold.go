// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"strings"
	"unicode/utf8"
)

// fold breaks lines that are longer than width between words; a width of 0 breaks none. A table keeps its
// columns, if some can be narrower. Otherwise the rest of a line of a table begins below the line's last
// cell; the rest of another line is indented by two spaces.
func fold(text []byte, width int) []byte {
	if width == 0 {
		return text
	}
	var out strings.Builder
	for lines := strings.SplitAfter(string(text), "\n"); len(lines) > 0; {
		if narrow, of := narrowTable(lines, width); of > 0 {
			out.WriteString(narrow)
			lines = lines[of:]
			continue
		}
		foldLine(&out, lines[0], width)
		lines = lines[1:]
	}
	return []byte(out.String())
}

func foldLine(out *strings.Builder, line string, width int) {
	indent := hanging(line, width)
	for {
		head, rest := cut(line, width)
		out.WriteString(head)
		if rest == "" {
			return
		}
		out.WriteByte('\n')
		line = indent + rest
	}
}

// hanging returns the indentation of a line's continuation, at most half of the width.
func hanging(line string, width int) string {
	const between = "  " // cells
	indent := 2
	if at := strings.LastIndex(strings.TrimRight(line, " \n"), between); at >= 0 {
		indent = utf8.RuneCountInString(line[:at]) + len(between)
	}
	if indent > width/2 {
		indent = 2
	}
	return strings.Repeat(" ", indent)
}

// cut returns the words of a line that fit into width, and the other words. A first word that does not fit
// stays whole.
func cut(line string, width int) (head, rest string) {
	if utf8.RuneCountInString(strings.TrimRight(line, " \n")) <= width {
		return line, ""
	}
	begin := len(line) - len(strings.TrimLeft(line, " "))
	at, column := -1, 0
	for i, r := range line {
		if r == ' ' && i > begin && (column <= width || at < 0) {
			at = i
		}
		column++
	}
	if at < 0 {
		return line, ""
	}
	return strings.TrimRight(line[:at], " "), strings.TrimLeft(line[at:], " ")
}
