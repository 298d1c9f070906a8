// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// plainName reports whether a name can stand in the file as it is. Anything else is quoted, "end" too: the
// last line starts with it.
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

// plainText reports whether a line of text can stand in the file as it is: something to see at both ends and
// nothing that an editor could change unseen.
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

// plainLines returns the lines of a text if all of them are plain and end in a newline, nil otherwise.
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

// cutName splits a line after the name it starts with.
func cutName(line string) (name, rest string, err error) {
	if line[0] != '"' {
		name, _, _ = strings.Cut(line, " ")
		if !plainName(name) {
			return "", "", fmt.Errorf("name %.80q has to be quoted", name)
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

// unquote returns a string as it is where that is plain, and what it quotes where it is quoted.
func unquote(s string, plain func(string) bool) (string, error) {
	if !strings.HasPrefix(s, `"`) {
		if !plain(s) {
			return "", fmt.Errorf("%.80q has to be quoted", s)
		}
		return s, nil
	}
	text, err := strconv.Unquote(s)
	if err != nil {
		return "", fmt.Errorf("unquote %.80s: %w", s, err)
	}
	return text, nil
}
