// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

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
	name, err = unquote(quoted, nil)
	return name, line[len(quoted):], err
}

// unquote returns the value of a quoted string, or a plain string unchanged.
func unquote(s string, plain func(string) bool) (string, error) {
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
