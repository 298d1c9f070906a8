// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Parse reads a machine file. Errors are one sentence and contain the line number.
func Parse(r io.Reader) (*Machine, error) {
	content, err := readText(r)
	if err != nil {
		return nil, err
	}
	p := &parser{
		rest: strings.TrimSuffix(content, "\n"), more: content != "", builder: NewBuilder(),
		sections: map[string]bool{},
	}
	if err := p.parseFile(); err != nil {
		return nil, fmt.Errorf("parse machine file: line %d: %w", max(p.number, 1), err)
	}
	return p.builder.Machine()
}

// readText reads a machine file.
func readText(r io.Reader) (string, error) {
	var text strings.Builder
	n, err := io.Copy(&text, io.LimitReader(r, mostBytes+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read machine file: %w", err)
	case n > mostBytes:
		return "", fmt.Errorf("read machine file: larger than %d MiB", mostBytes>>20)
	}
	return text.String(), nil
}

// parser parses a machine file line by line.
type parser struct {
	rest     string // the text after the last line
	more     bool   // rest contains a line
	before   string // the last line and rest
	number   int    // number of the last line
	builder  *Builder
	section  string
	sections map[string]bool
	entries  int
}

// errEnd means that the text has ended.
var errEnd = errors.New(`no line "end N entries" at the end: the file is truncated`)

// nextLine returns the next line, or errEnd after the last line.
func (p *parser) nextLine() (string, error) {
	if !p.more {
		return "", errEnd
	}
	p.number++
	p.before = p.rest
	var line string
	line, p.rest, p.more = strings.Cut(p.rest, "\n")
	return line, nil
}

// unreadLine makes next return the last line again. It must not be called twice in a row.
func (p *parser) unreadLine() {
	p.number--
	p.rest, p.more = p.before, true
}

func (p *parser) parseFile() error {
	if err := p.parseHead(); err != nil {
		return err
	}
	for {
		line, err := p.nextLine()
		if err != nil {
			return err
		}
		switch {
		case line == "":
		case line[0] == '[':
			err = p.parseDirectory(line)
		case strings.HasPrefix(line, "end "):
			return p.parseEnd(line)
		default:
			err = p.parseEntry(line)
		}
		if err != nil {
			return err
		}
	}
}

// parseHead reads the header and the comments below it.
func (p *parser) parseHead() error {
	line, err := p.nextLine()
	if err != nil && !errors.Is(err, errEnd) {
		return err
	}
	version, ok := strings.CutPrefix(line, strings.TrimSuffix(header, "v1"))
	switch {
	case !ok:
		return fmt.Errorf("not a machine file: want %q", header)
	case version != "v1":
		return fmt.Errorf("unknown version %.80q of the machine file: want v1", version)
	}
	for {
		line, err := p.nextLine()
		if err != nil {
			return err
		}
		comment, ok := strings.CutPrefix(line, "#")
		if !ok {
			p.unreadLine()
			return nil
		}
		if p.number > mostComments {
			return fmt.Errorf("the file has more than %d lines of comments", mostComments)
		}
		p.builder.Comment(strings.TrimPrefix(comment, " "))
	}
}

func (p *parser) parseDirectory(line string) error {
	name, ok := strings.CutSuffix(line[1:], "]")
	if !ok {
		return fmt.Errorf("want a directory in brackets, not %.80q", line)
	}
	name, err := unquoteText(name, plainPath)
	if err != nil {
		return err
	}
	if p.sections[name] {
		return fmt.Errorf("%s is defined twice", name)
	}
	p.sections[name] = true
	p.section = name
	p.entries++
	return p.builder.addDir(name)
}

// parseEntry reads a file or a link. The name must be a single path element, so that the directory is
// explicit.
func (p *parser) parseEntry(line string) error {
	if p.section == "" {
		return fmt.Errorf("want a directory in brackets first, not %.80q", line)
	}
	if line[0] == '#' {
		return errors.New("a comment below the head of the file")
	}
	name, rest, err := cutName(line)
	if err != nil {
		return err
	}
	if strings.Contains(name, "/") || name == "." || name == ".." {
		return fmt.Errorf("name %.80q is not a single path element", name)
	}
	p.entries++
	name = path.Join(p.section, name)
	if target, ok := strings.CutPrefix(rest, " -> "); ok {
		return p.parseLink(name, target)
	}
	value, ok := strings.CutPrefix(rest, " =")
	if !ok {
		return fmt.Errorf("want name = value or name -> target, not %.80q", line)
	}
	content, err := p.parseContent(value)
	if err != nil {
		return err
	}
	return p.builder.addNode(name, &node{text: content})
}

func (p *parser) parseLink(name, target string) error {
	target, err := unquoteText(target, plainPath)
	if err != nil {
		return err
	}
	return p.builder.addLink(name, target)
}

// parseContent reads a value: text or a quoted string after a space, or the following indented lines.
func (p *parser) parseContent(value string) (string, error) {
	if value == "" {
		return p.parseIndented()
	}
	value, ok := strings.CutPrefix(value, " ")
	if !ok {
		return "", errors.New("want a space after the equals sign")
	}
	if strings.HasPrefix(value, `"`) {
		return unquoteText(value, nil)
	}
	if !plainText(value) {
		return "", fmt.Errorf("value %.80q must be quoted", value)
	}
	return value + "\n", nil
}

func (p *parser) parseIndented() (string, error) {
	var content strings.Builder
	for {
		line, err := p.nextLine()
		if err != nil {
			return "", err
		}
		text, ok := strings.CutPrefix(line, "\t")
		if !ok {
			p.unreadLine()
			break
		}
		if !plainText(text) {
			return "", fmt.Errorf("line %.80q: the whole content of the file must be quoted", text)
		}
		content.WriteString(text + "\n")
	}
	if content.Len() == 0 {
		return "", errors.New("an empty file must be written as name = \"\"")
	}
	return content.String(), nil
}

// parseEnd checks the number of entries and that no text follows.
func (p *parser) parseEnd(line string) error {
	number, ok := strings.CutSuffix(strings.TrimPrefix(line, "end "), " entries")
	count, err := strconv.Atoi(number)
	if !ok || err != nil {
		return fmt.Errorf("want \"end N entries\", not %.80q", line)
	}
	if count != p.entries {
		return fmt.Errorf("%d entries instead of %d: lines are missing or were added", p.entries, count)
	}
	for {
		line, err := p.nextLine()
		switch {
		case errors.Is(err, errEnd):
			return nil
		case err != nil:
			return err
		case line != "":
			return fmt.Errorf("unexpected %.80q after the last line", line)
		}
	}
}

// plainName reports whether a name needs no quotes. The name "end" needs quotes because the last line starts
// with "end".
func plainName(name string) bool {
	for i, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		case r == '#' && i == 0:
			return false
		case !strings.ContainsRune("._:-+@,#", r):
			return false
		}
	}
	return name != "" && name != "end"
}

func plainPath(name string) bool { return plainName(strings.ReplaceAll(name, "/", "")) }

// plainText reports whether a line of text needs no quotes: the line contains only printable characters,
// starts and ends with a visible one, and does not start with a quotation mark.
func plainText(text string) bool {
	if text == "" || text[0] == '"' || text != strings.TrimSpace(text) || !utf8.ValidString(text) {
		return false
	}
	for _, r := range text {
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}

// plainLines returns the lines of a text if all lines are plain and end with a newline; otherwise nil.
func plainLines(text string) []string {
	text, ok := strings.CutSuffix(text, "\n")
	if !ok {
		return nil
	}
	lines := strings.Split(text, "\n")
	for _, line := range lines {
		if !plainText(line) {
			return nil
		}
	}
	return lines
}

func quoteName(name string) string {
	if plainName(name) {
		return name
	}
	return strconv.Quote(name)
}

func quotePath(name string) string {
	if plainPath(name) {
		return name
	}
	return strconv.Quote(name)
}

// cutName splits a line after its leading name.
func cutName(line string) (name, rest string, err error) {
	if line[0] != '"' {
		name, _, _ = strings.Cut(line, " ")
		if !plainName(name) {
			return "", "", fmt.Errorf("name %.80q must be quoted", name)
		}
		return name, line[len(name):], nil
	}
	quoted, err := strconv.QuotedPrefix(line)
	if err != nil {
		return "", "", fmt.Errorf("unquote %.80s: %w", line, err)
	}
	name, err = unquoteText(quoted, nil)
	return name, line[len(quoted):], err
}

// unquoteText returns the value of a quoted string, or a plain string unchanged.
func unquoteText(s string, plain func(string) bool) (string, error) {
	if !strings.HasPrefix(s, `"`) {
		if !plain(s) {
			return "", fmt.Errorf("%.80q must be quoted", s)
		}
		return s, nil
	}
	text, err := strconv.Unquote(s)
	if err != nil {
		return "", fmt.Errorf("unquote %.80s: %w", s, err)
	}
	return text, nil
}
