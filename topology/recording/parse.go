// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
)

// Parse reads a machine file. Its errors are one sentence and name the line.
func Parse(r io.Reader) (*Machine, error) {
	content, err := read(r)
	if err != nil {
		return nil, err
	}
	p := &parser{
		rest: strings.TrimSuffix(content, "\n"), more: content != "", builder: NewBuilder(),
		sections: map[string]bool{},
	}
	if err := p.file(); err != nil {
		return nil, fmt.Errorf("parse machine file: line %d: %w", max(p.number, 1), err)
	}
	return p.builder.Machine()
}

// parser goes from line to line.
type parser struct {
	rest     string // after the line read last
	more     bool   // whether there is a line in rest
	before   string // rest and the line read last
	number   int    // of the line read last
	builder  *Builder
	section  string
	sections map[string]bool
	entries  int
}

// errEnd is the end of the text.
var errEnd = errors.New(`the file ends without the line "end N entries": it is cut short`)

// next returns the next line, or errEnd. The number stays that of the last line there is.
func (p *parser) next() (string, error) {
	if !p.more {
		return "", errEnd
	}
	p.number++
	p.before = p.rest
	var line string
	line, p.rest, p.more = strings.Cut(p.rest, "\n")
	return line, nil
}

// unread takes the line read last back, once.
func (p *parser) unread() {
	p.number--
	p.rest, p.more = p.before, true
}

func (p *parser) file() error {
	if err := p.head(); err != nil {
		return err
	}
	for {
		line, err := p.next()
		if err != nil {
			return err
		}
		switch {
		case line == "":
		case line[0] == '[':
			err = p.directory(line)
		case strings.HasPrefix(line, "end "):
			return p.end(line)
		default:
			err = p.entry(line)
		}
		if err != nil {
			return err
		}
	}
}

// head reads the header and the comments below it.
func (p *parser) head() error {
	line, err := p.next()
	if err != nil && !errors.Is(err, errEnd) {
		return err
	}
	version, ok := strings.CutPrefix(line, strings.TrimSuffix(header, "v1"))
	switch {
	case !ok:
		return fmt.Errorf("this is no machine file: want %q", header)
	case version != "v1":
		return fmt.Errorf("version %.80q of the machine file is not known, only v1 is", version)
	}
	for {
		line, err := p.next()
		if err != nil {
			return err
		}
		comment, ok := strings.CutPrefix(line, "#")
		if !ok {
			p.unread()
			return nil
		}
		if p.number > mostComments {
			return fmt.Errorf("the file has more than %d lines of comments", mostComments)
		}
		p.builder.Comment(strings.TrimPrefix(comment, " "))
	}
}

func (p *parser) directory(line string) error {
	name, ok := strings.CutSuffix(line[1:], "]")
	if !ok {
		return fmt.Errorf("want a directory in brackets, not %.80q", line)
	}
	name, err := unquote(name, plainPath)
	if err != nil {
		return err
	}
	if p.sections[name] {
		return fmt.Errorf("%s is there twice", name)
	}
	p.sections[name] = true
	p.section = name
	p.entries++
	return p.builder.dir(name)
}

// entry reads a file or a link. Its name is one element: a name with a slash would hide in which directory it
// is.
func (p *parser) entry(line string) error {
	if p.section == "" {
		return fmt.Errorf("want a directory in brackets first, not %.80q", line)
	}
	if line[0] == '#' {
		return errors.New("comments stand at the head of the file only")
	}
	name, rest, err := cutName(line)
	if err != nil {
		return err
	}
	if strings.Contains(name, "/") || name == "." || name == ".." {
		return fmt.Errorf("name %.80q is not that of an entry of the directory", name)
	}
	p.entries++
	name = path.Join(p.section, name)
	if target, ok := strings.CutPrefix(rest, " -> "); ok {
		return p.link(name, target)
	}
	value, ok := strings.CutPrefix(rest, " =")
	if !ok {
		return fmt.Errorf("want name = value or name -> target, not %.80q", line)
	}
	content, err := p.content(value)
	if err != nil {
		return err
	}
	return p.builder.add(name, &node{text: content})
}

func (p *parser) link(name, target string) error {
	target, err := unquote(target, plainPath)
	if err != nil {
		return err
	}
	return p.builder.link(name, target)
}

// content reads a value: text or a quoted string after a space, or the indented lines that follow.
func (p *parser) content(value string) (string, error) {
	if value == "" {
		return p.indented()
	}
	value, ok := strings.CutPrefix(value, " ")
	if !ok {
		return "", errors.New("want a space after the equals sign")
	}
	if strings.HasPrefix(value, `"`) {
		return unquote(value, nil)
	}
	if !plainText(value) {
		return "", fmt.Errorf("value %.80q has to be quoted", value)
	}
	return value + "\n", nil
}

func (p *parser) indented() (string, error) {
	var content strings.Builder
	for {
		line, err := p.next()
		if err != nil {
			return "", err
		}
		text, ok := strings.CutPrefix(line, "\t")
		if !ok {
			p.unread()
			break
		}
		if !plainText(text) {
			return "", fmt.Errorf("line %.80q has to be quoted with all of its file", text)
		}
		content.WriteString(text + "\n")
	}
	if content.Len() == 0 {
		return "", errors.New("a file without a value has to be written as name = \"\"")
	}
	return content.String(), nil
}

// end checks the count, and that nothing follows.
func (p *parser) end(line string) error {
	number, ok := strings.CutSuffix(strings.TrimPrefix(line, "end "), " entries")
	count, err := strconv.Atoi(number)
	if !ok || err != nil {
		return fmt.Errorf("want \"end N entries\", not %.80q", line)
	}
	if count != p.entries {
		return fmt.Errorf("the file has %d entries where it should have %d: lines are missing or were added",
			p.entries, count)
	}
	for {
		line, err := p.next()
		switch {
		case errors.Is(err, errEnd):
			return nil
		case err != nil:
			return err
		case line != "":
			return fmt.Errorf("nothing may follow the last line, but there is %.80q", line)
		}
	}
}
