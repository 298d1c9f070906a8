// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"cmp"
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
//	<  the name of a file that later commands name as {NAME}, and with
//	>  a line of this file
//	$  a command; behind " | " a pattern of the lines of its output that are compared
//	!  a line of its standard error
//	=  its exit code, if not 0
//
// and with two blanks a line of its standard output.
type Script struct {
	Run  func(args []string) (code int, stdout, stderr string)
	Word func(name string) string // the word of a command for {NAME}; the output has {NAME} again
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
	folder, words, target := t.TempDir(), map[string]string{}, ""
	for line := range strings.Lines(string(content)) {
		kind, text := line[:1], strings.TrimSpace(line[1:])
		if !strings.Contains("#<>$", kind) {
			continue // is printed anew
		}
		got.WriteString(line)
		switch kind {
		case "<":
			target = filepath.Join(folder, text)
			words[text] = target
		case ">":
			appendLine(t, target, text)
		case "$":
			got.WriteString(s.run(text, words) + "\n")
		}
	}
	Check(t, file, got.String())
}

func appendLine(t testing.TB, name, line string) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
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
