// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Verdict says how good or bad the subject of a text is. It decides about the colour of the text, which is
// never the only carrier of the verdict.
type Verdict string

// The verdicts; "" is none.
const (
	Good     Verdict = "good"
	Doubtful Verdict = "doubtful"
	Bad      Verdict = "bad"
)

// colours are the control sequences of verdicts, for the colours of the terminal's own theme.
var colours = map[Verdict]string{Good: "\x1b[32m", Doubtful: "\x1b[33m", Bad: "\x1b[31m"}

// plain is the control sequence that ends a colour.
const plain = "\x1b[0m"

// part is a part of a line or cell, with a verdict.
type part struct {
	Text    string
	Verdict Verdict
}

// Cell is a line, or a cell of a row.
type Cell []part

// Of returns a text with the verdict.
func (v Verdict) Of(text any) Cell {
	printed := fmt.Sprint(text)
	if printed == "" {
		return nil
	}
	return Cell{{Printable(printed), v}}
}

// NewCell returns a cell of parts: each is a Cell, or a value without a verdict.
func NewCell(parts ...any) (all Cell) {
	for _, part := range parts {
		cell, isCell := part.(Cell)
		if !isCell {
			cell = Verdict("").Of(part)
		}
		all = append(all, cell...)
	}
	return all
}

// JoinCells returns a cell of parts with a separator, "-" for no part.
func JoinCells(parts []any, separator string) Cell {
	if len(parts) == 0 {
		return NewCell("-")
	}
	all := NewCell(parts[0])
	for _, part := range parts[1:] {
		all = NewCell(all, separator, part)
	}
	return all
}

// String returns the text.
func (c Cell) String() string {
	var text strings.Builder
	for _, part := range c {
		text.WriteString(part.Text)
	}
	return text.String()
}

// cut is a position in a cell.
type cut struct {
	rest Cell
	done int // bytes of the first part of the rest
}

// take returns the next bytes of the cell.
func (c *cut) take(bytes int) (of Cell) {
	for bytes > 0 {
		first := c.rest[0]
		end := min(c.done+bytes, len(first.Text))
		of = append(of, part{first.Text[c.done:end], first.Verdict})
		bytes -= end - c.done
		c.done = end
		if end == len(first.Text) {
			c.rest, c.done = c.rest[1:], 0
		}
	}
	return of
}

// countCharacters returns the number of characters.
func (c Cell) countCharacters() int { return utf8.RuneCountInString(c.String()) }

// measureWords returns the number of characters of the longest word.
func (c Cell) measureWords() (longest int) {
	for _, word := range c.foldWords(1, 0) {
		longest = max(longest, word.countCharacters())
	}
	return longest
}

// foldWords breaks a cell between words into lines that are not longer than width, if no word is longer.
// Lines after the first are indented.
func (c Cell) foldWords(width, indent int) (lines []Cell) {
	text, parts := c.String(), cut{rest: c}
	var indentation Cell
	for {
		head, rest := cutLine(text, width-len(indentation.String()))
		lines = append(lines, slices.Concat(indentation, parts.take(head)))
		if rest == len(text) {
			return lines
		}
		parts.take(rest - head)
		text, indentation = text[rest:], Cell{{Text: strings.Repeat(" ", indent)}}
	}
}

// cutLine returns the end of the words of a line that fit into width, and the begin of the other words. A
// first word that does not fit stays whole.
func cutLine(line string, width int) (head, rest int) {
	begin := len(line) - len(strings.TrimLeft(line, " "))
	at, column := -1, 0
	for i, r := range line {
		if r == ' ' && i > begin && (column <= width || at < 0) {
			at = i
		}
		column++
		if column > width && at >= 0 {
			return len(strings.TrimRight(line[:at], " ")), len(line) - len(strings.TrimLeft(line[at:], " "))
		}
	}
	return len(line), len(line)
}

// Text is a text for people: lines, and tables of rows. The columns of a table are two spaces apart.
type Text struct {
	tables  []table // a line is a table of one cell
	inTable bool    // the next row is of the last table
}

// Line adds a line of parts, as [NewCell] takes them.
func (t *Text) Line(parts ...any) {
	t.inTable = false
	t.Row(NewCell(parts...))
	t.inTable = false
}

// Row adds a row. The columns are those of the rows before, up to the last line.
func (t *Text) Row(cells ...any) {
	if !t.inTable {
		t.tables, t.inTable = append(t.tables, nil), true
	}
	var row []Cell
	for _, cell := range cells {
		row = append(row, NewCell(cell))
	}
	last := &t.tables[len(t.tables)-1]
	*last = append(*last, row)
}

// Write implements io.Writer: it adds whole lines of a text, which may be another program's. Colours are
// verdicts again; other control characters are escaped.
func (t *Text) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		t.Line(readColours(strings.TrimSuffix(line, "\n")))
	}
	return len(text), nil
}

// readColours returns the parts of a line with the verdicts of their colours.
func readColours(line string) (parts Cell) {
	const control = "\x1b["
	var verdict Verdict
	for i, piece := range strings.Split(line, control) {
		code, text, ended := strings.Cut(piece, "m")
		switch now, is := verdictOf(control + code + "m"); {
		case i == 0:
			text = piece
		case ended && is:
			verdict = now
		default:
			text = control + piece
		}
		if text != "" {
			parts = append(parts, part{PrintableLines(text), verdict})
		}
	}
	return parts
}

// verdictOf returns the verdict whose text begins with a control sequence, "" for the end of a colour.
func verdictOf(sequence string) (verdict Verdict, is bool) {
	for verdict, colour := range colours {
		if colour == sequence {
			return verdict, true
		}
	}
	return "", sequence == plain
}

// String returns the text as programs read it, which do not know the width of a terminal.
func (t *Text) String() string { return joinLines(t.layOut(0)) }

// joinLines returns lines as one text.
func joinLines(lines []Cell) string {
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(line.String() + "\n")
	}
	return text.String()
}

// layOut returns the lines for a terminal with a width; 0 for lines of any length.
func (t *Text) layOut(width int) (lines []Cell) {
	for _, table := range t.tables {
		lines = append(lines, table.layOut(width)...)
	}
	return lines
}

// table is rows of cells. A row may have fewer cells than others; its last cell is as wide as it is.
type table [][]Cell

// between is the number of spaces between two columns.
const between = 2

// layOut returns the lines of a table. A table that does not fit into width gets narrower columns, with cells
// on several lines. If its columns cannot be that narrow, its lines are folded.
func (t table) layOut(width int) (lines []Cell) {
	fit := func(lines []Cell) bool {
		return !slices.ContainsFunc(lines, func(line Cell) bool { return line.countCharacters() > width })
	}
	widths := t.measureColumns(Cell.countCharacters)
	lines = t.wrapRows(math.MaxInt, widths)
	if width == 0 || fit(lines) {
		return lines
	}
	narrow := t.shrinkTo(width, widths)
	wrapped := t.wrapRows(width, narrow)
	if len(narrow) > 1 && fit(wrapped) {
		return wrapped
	}
	var folded []Cell
	for _, line := range lines {
		folded = append(folded, line.foldWords(width, hangingIndent(line.String(), width))...)
	}
	return folded
}

// measureColumns returns the greatest measure of the cells of each column, except of last cells with a column
// after them in other rows.
func (t table) measureColumns(measure func(Cell) int) (all []int) {
	for _, row := range t {
		all = append(all, make([]int, max(0, len(row)-len(all)))...)
	}
	for _, row := range t {
		for i, cell := range row {
			if i < len(row)-1 || len(row) == len(all) {
				all[i] = max(all[i], measure(cell))
			}
		}
	}
	return all
}

// shrinkTo returns narrower columns, the widest first, for a table that fits into width. A column stays as
// wide as its longest word, and the first column as it is.
func (t table) shrinkTo(width int, widths []int) (narrow []int) {
	narrow = slices.Clone(widths)
	shortest := t.measureColumns(Cell.measureWords)
	for {
		excess := startOf(len(narrow), narrow) - between - width
		widest := 0
		for i, w := range narrow {
			if i > 0 && w > shortest[i] && (widest == 0 || w > narrow[widest]) {
				widest = i
			}
		}
		if excess <= 0 || widest == 0 {
			return narrow
		}
		narrow[widest] = max(shortest[widest], narrow[widest]-excess)
	}
}

// wrapRows returns the lines of a table, with cells that do not fit into their columns on several lines.
func (t table) wrapRows(width int, widths []int) (lines []Cell) {
	for _, row := range t {
		var parts [][]Cell // by the number of the line
		for i, cell := range row {
			room := widths[i]
			if i == len(row)-1 {
				room = width - startOf(i, widths)
			}
			for n, part := range cell.foldWords(room, 0) {
				if n == len(parts) {
					parts = append(parts, make([]Cell, len(row)))
				}
				parts[n][i] = part
			}
		}
		for _, part := range parts {
			lines = append(lines, joinCells(part, widths))
		}
	}
	return lines
}

// joinCells returns a line with cells at the begin of their columns.
func joinCells(cells []Cell, widths []int) (line Cell) {
	for i, cell := range cells {
		if len(cell) > 0 {
			line = append(line, part{Text: strings.Repeat(" ", startOf(i, widths)-line.countCharacters())})
			line = append(line, cell...)
		}
	}
	return line
}

// startOf returns the place at which a column begins.
func startOf(column int, widths []int) (start int) {
	for _, width := range widths[:column] {
		start += width + between
	}
	return start
}

// hangingIndent returns the indentation of a line's continuation: below the last column of the line, if the
// column begins in the left half.
func hangingIndent(line string, width int) int {
	indent := between
	at := strings.LastIndex(strings.TrimRight(line, " "), "  ")
	if at >= 0 {
		indent += utf8.RuneCountInString(line[:at])
	}
	if indent > width/2 {
		return between
	}
	return indent
}
