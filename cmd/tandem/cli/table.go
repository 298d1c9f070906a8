// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// between are the spaces between two columns.
const between = "  "

// table is a table of text: the columns begin at the same places in all lines. The first line has the names
// of the columns.
type table struct {
	rows   [][]string // cells
	widths []int      // of the columns
}

// narrowTable returns the table at the beginning of lines with narrower columns, and the number of its lines.
// The number is 0 if no table is there, if the table fits into width, or if its columns cannot be that
// narrow.
func narrowTable(lines []string, width int) (narrow string, of int) {
	starts := columnsOf(lines[0])
	if starts == nil {
		return "", 0
	}
	var t table
	for _, line := range lines {
		cells := cellsOf(line, starts)
		if cells == nil {
			break
		}
		t.addRow(cells)
	}
	if t.width() <= width || !t.shrinkTo(width) {
		return "", 0
	}
	return t.String(), len(t.rows)
}

// columnsOf returns the places at which the columns of a table begin, by the line with their names; nil if
// the line has none.
func columnsOf(line string) []int {
	names := []rune(strings.TrimRight(line, "\n"))
	first, _, more := strings.Cut(strings.TrimLeft(string(names), " "), between)
	if !more || strings.ContainsFunc(first, func(r rune) bool { return r != ' ' && !unicode.IsUpper(r) }) {
		return nil
	}
	starts := []int{0}
	named := false
	for i, r := range names {
		if named && r != ' ' && i >= 2 && names[i-1] == ' ' && names[i-2] == ' ' {
			starts = append(starts, i)
		}
		named = named || r != ' '
	}
	return starts
}

// cellsOf returns the cells of a line; nil for a line that is not in the table.
func cellsOf(line string, starts []int) (cells []string) {
	text := []rune(strings.TrimRight(line, "\n"))
	if len(text) == 0 {
		return nil
	}
	for i, start := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = min(end, starts[i+1])
		}
		if start > 0 && start <= len(text) && string(text[start-2:start]) != between {
			return nil
		}
		cells = append(cells, strings.TrimRight(string(text[min(start, end):end]), " "))
	}
	return cells
}

func (t *table) addRow(cells []string) {
	if t.widths == nil {
		t.widths = make([]int, len(cells))
	}
	for i, cell := range cells {
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
	}
	t.rows = append(t.rows, cells)
}

func (t *table) width() int {
	sum := len(between) * (len(t.widths) - 1)
	for _, width := range t.widths {
		sum += width
	}
	return sum
}

// shrinkTo makes columns narrower, the widest first, until the table fits into width. A column stays as wide
// as its longest word, and the first column as it is. Returns false if the table does not fit.
func (t *table) shrinkTo(width int) bool {
	shortest := make([]int, len(t.widths))
	for i := range shortest {
		shortest[i] = t.longestWord(i)
	}
	shortest[0] = t.widths[0]
	for excess := t.width() - width; excess > 0; excess = t.width() - width {
		widest := -1
		for i, w := range t.widths {
			if w > shortest[i] && (widest < 0 || w > t.widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		t.widths[widest] = max(shortest[widest], t.widths[widest]-excess)
	}
	return true
}

func (t *table) longestWord(column int) (longest int) {
	for _, row := range t.rows {
		for word := range strings.FieldsSeq(row[column]) {
			longest = max(longest, utf8.RuneCountInString(word))
		}
	}
	return longest
}

// String returns the text of the table, with cells that do not fit into their column on several lines.
func (t *table) String() string {
	var out strings.Builder
	for _, row := range t.rows {
		parts := make([][]string, len(row))
		lines := 1
		for i, cell := range row {
			parts[i] = wrapCell(cell, t.widths[i])
			lines = max(lines, len(parts[i]))
		}
		for line := range lines {
			out.WriteString(strings.TrimRight(t.lineOfRow(parts, line), " ") + "\n")
		}
	}
	return out.String()
}

// lineOfRow returns one of the lines of a row.
func (t *table) lineOfRow(parts [][]string, number int) string {
	var cells []string
	for i, part := range parts {
		text := ""
		if number < len(part) {
			text = part[number]
		}
		cells = append(cells, text+strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(text)))
	}
	return strings.Join(cells, between)
}

// wrapCell breaks a cell between words into lines that are not longer than width.
func wrapCell(cell string, width int) (lines []string) {
	if utf8.RuneCountInString(cell) <= width {
		return []string{cell}
	}
	for word := range strings.FieldsSeq(cell) {
		last := len(lines) - 1
		if last >= 0 && utf8.RuneCountInString(lines[last]+" "+word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

// foldText breaks lines that are longer than width between words; a width of 0 breaks none. A table keeps its
// columns, if some can be narrower. Otherwise the rest of a line of a table begins below the line's last
// cell; the rest of another line is indented by two spaces.
func foldText(text []byte, width int) []byte {
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
	indent := hangingIndent(line, width)
	for {
		head, rest := cutLine(line, width)
		out.WriteString(head)
		if rest == "" {
			return
		}
		out.WriteByte('\n')
		line = indent + rest
	}
}

// hangingIndent returns the indentation of a line's continuation, at most half of the width.
func hangingIndent(line string, width int) string {
	indent := 2
	if at := strings.LastIndex(strings.TrimRight(line, " \n"), between); at >= 0 {
		indent = utf8.RuneCountInString(line[:at]) + len(between)
	}
	if indent > width/2 {
		indent = 2
	}
	return strings.Repeat(" ", indent)
}

// cutLine returns the words of a line that fit into width, and the other words. A first word that does not
// fit stays whole.
func cutLine(line string, width int) (head, rest string) {
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
