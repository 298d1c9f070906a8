// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Script is a file of commands, each followed by what it prints. A line of the file starts with
//
//	#  a comment
//	@  a step before later commands: its name, and text
//	<  the name of a file, empty at first, that later commands name as {NAME}
//	>  a line of this file
//	$  a command; behind " | " a pattern of the lines of its output that are compared
//	!  a line of its standard error
//	=  its exit code, if not 0, and with
//
// two blanks a line of its standard output.
type Script struct {
	Run  func(args []string) (code int, stdout, stderr string)
	Word func(name string) string // the word of a command for {NAME}; the output has {NAME} again
	Step func(name, text string)  // takes a step
	File func(name string) string // where a file of the script is; nil for a temporary folder
}

var wordInBraces = regexp.MustCompile(`\{([^{}\s"]+)\}`)

// Check fails the test unless the commands of a file print what the file has.
func (s Script) Check(t testing.TB, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	words, target := map[string]string{}, ""
	if s.File == nil {
		folder := t.TempDir()
		s.File = func(name string) string { return filepath.Join(folder, name) }
	}
	for line := range strings.Lines(string(content)) {
		kind, text := line[:1], strings.TrimSuffix(strings.TrimPrefix(line[1:], " "), "\n")
		if !strings.Contains("#@<>$", kind) {
			continue // is printed anew
		}
		got.WriteString(line)
		switch kind {
		case "@":
			name, text, _ := strings.Cut(text, " ")
			s.Step(name, text)
		case "<":
			target = s.File(text)
			words[text] = target
			create(t, target)
		case ">":
			appendLine(t, target, text)
		case "$":
			got.WriteString(s.run(text, words) + "\n")
		}
	}
	Check(t, file, got.String())
}

// create makes an empty file, in place of another or of a link.
func create(t testing.TB, name string) {
	t.Helper()
	folder := os.MkdirAll(filepath.Dir(name), 0o755)
	if err := errors.Join(folder, os.RemoveAll(name), os.WriteFile(name, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
}

func appendLine(t testing.TB, name, line string) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(line + "\n"); err != nil {
		t.Fatal(err)
	}
}

// run returns what a command prints, as lines of a script.
func (s Script) run(command string, words map[string]string) string {
	command, pattern, _ := strings.Cut(command, " | ")
	args := strings.Fields(wordInBraces.ReplaceAllStringFunc(command, func(braces string) string {
		name := strings.Trim(braces, "{}")
		if words[name] == "" {
			words[name] = s.Word(name)
		}
		return words[name]
	}))
	for i, arg := range args {
		if arg == `""` {
			args[i] = ""
		}
	}
	code, stdout, stderr := s.Run(args)
	names := slices.Collect(maps.Keys(words))
	slices.SortFunc(names, func(a, b string) int { // a word may be the beginning of another
		return cmp.Compare(len(words[b]), len(words[a]))
	})
	for _, name := range names {
		stdout = strings.ReplaceAll(stdout, words[name], "{"+name+"}")
		stderr = strings.ReplaceAll(stderr, words[name], "{"+name+"}")
	}
	var printed strings.Builder
	shown := regexp.MustCompile(pattern)
	for line := range strings.Lines(stdout) {
		if shown.MatchString(line) {
			printed.WriteString(strings.TrimRight("  "+line, " \n") + "\n")
		}
	}
	for line := range strings.Lines(stderr) {
		printed.WriteString("! " + strings.TrimRight(line, "\n") + "\n")
	}
	if code != 0 {
		fmt.Fprintf(&printed, "= %d\n", code)
	}
	return printed.String()
}
