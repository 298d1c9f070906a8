// SPDX-License-Identifier: Apache-2.0

// Package docs finds the commands in the documents, so that tests can run all of them. The package's own
// tests check links, YAML and JSON snippets, flags, paths and the size of README.
//
// A command begins with one of [Programs], in one of these places:
//
//   - a line of a shell block ("sh")
//   - a line of a console block, after "$ "
//   - an indented line
//   - backquotes, with at least one argument
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Files returns the documents of a repository, sorted, README.md first.
func Files(root string) ([]string, error) {
	files := []string{"README.md", "CONTRIBUTING.md", "deployments/monitoring/METRICS.md"}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	for _, page := range pages {
		files = append(files, "docs/"+filepath.Base(page))
	}
	slices.Sort(files[1:])
	return files, err
}

// Programs maps each program that documents may mention to the test of its commands.
var Programs = map[string]string{
	"tandem":     "cmd/tandem/readme_test.go",
	"tandem-lab": "cmd/tandem-lab/tandem_lab_test.go",
	"tandem-gpu": "test/others/chart/chart_test.go",
	"helm":       "test/others/chart/docs_test.go",
	"kubectl":    "test/others/chart/docs_test.go",
	"make":       "test/docs/docs_test.go",
	"apt-get":    "deployments/release/docs_test.go",
	"cosign":     "deployments/release/docs_test.go",
	"curl":       "deployments/release/docs_test.go",
	"dnf":        "deployments/release/docs_test.go",
	"docker":     "deployments/release/image/dockerfile_test.go",
	"gh":         "deployments/release/docs_test.go",
	"sha256sum":  "deployments/release/docs_test.go",
	"tar":        "deployments/release/docs_test.go",
}

// Command is a command, split like by a shell, without sudo and without the directory of a built program.
type Command struct {
	Where   string // "README.md:12"
	Program string
	Args    []string
	Into    string // the file to which output is redirected, "" for none
	Output  string // the output in a console block; "" for none
}

// String returns the place and the command, for error messages.
func (c Command) String() string {
	return fmt.Sprintf("%s: %s %s", c.Where, c.Program, strings.Join(c.Args, " "))
}

// Of returns the commands of a program in all documents of a repository.
func Of(root, program string) ([]Command, error) {
	all, err := All(root)
	return slices.DeleteFunc(all, func(c Command) bool { return c.Program != program }), err
}

// All returns the commands in all documents of a repository. All returns an error if a shell block contains a
// program that is not in Programs.
func All(root string) (all []Command, err error) {
	files, err := Files(root)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		commands, err := find(file, string(content))
		if err != nil {
			return nil, err
		}
		all = append(all, commands...)
	}
	return all, nil
}

var quoted = regexp.MustCompile("`([^`]+)`")

// Parse returns the commands of a shell line.
func Parse(line string) []Command {
	commands, _ := split("", line)
	return commands
}

// find returns the commands of a document.
func find(file, text string) (all []Command, err error) {
	lines := strings.Split(text, "\n")
	fence, fenced := "", false
	for i := 0; i < len(lines); i++ {
		where := fmt.Sprintf("%s:%d", file, i+1)
		prompt, isPrompt := strings.CutPrefix(lines[i], "$ ")
		switch language, isFence := strings.CutPrefix(lines[i], "```"); {
		case isFence:
			fence, fenced = language, !fenced
		case fenced && fence == "console" && isPrompt:
			commands, _ := split(where, prompt)
			for ; len(commands) > 0 && !strings.HasPrefix(lines[i+1], "```"); i++ {
				commands[0].Output += lines[i+1] + "\n"
			}
			all = append(all, commands...)
		case fenced && fence != "sh":
		case fenced || strings.HasPrefix(lines[i], "    "):
			command := lines[i]
			commands, whole := split(where, command)
			for ; !whole; commands, whole = split(where, command) {
				if i++; i == len(lines) {
					return nil, fmt.Errorf("%s: incomplete command", where)
				}
				command += "\n" + lines[i]
			}
			if i := slices.IndexFunc(commands, unknown); fenced && i >= 0 {
				return nil, fmt.Errorf("%s: no test runs %s", where, commands[i].Program)
			}
			all = append(all, slices.DeleteFunc(commands, unknown)...)
		default:
			all = append(all, spans(where, lines[i])...)
		}
	}
	return all, nil
}

func unknown(c Command) bool {
	_, known := Programs[c.Program]
	return !known
}

// spans returns the commands in backquotes on a line of text. A program without arguments is not a command.
func spans(where, line string) (all []Command) {
	for _, span := range quoted.FindAllStringSubmatch(line, -1) {
		commands, _ := split(where, span[1])
		all = append(all,
			slices.DeleteFunc(commands, func(c Command) bool { return unknown(c) || len(c.Args) == 0 })...)
	}
	return all
}

// split splits a text like a shell, as far as the documents need: quotes, comments, redirections, "&&" and
// "|". The result whole is false if the command continues on the next line.
func split(where, text string) (all []Command, whole bool) {
	var words []string
	var word strings.Builder
	begun := false
	endWord := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	endCommand := func() {
		endWord()
		if c, ok := command(where, words); ok {
			all = append(all, c)
		}
		words = nil
	}
	quote := rune(0)
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		switch r := runes[i]; {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == '\\' && i+1 == len(runes):
			return nil, false
		case r == '\\' && runes[i+1] == '\n':
			i++
			endWord()
		case r == '#' && !begun:
			for i+1 < len(runes) && runes[i+1] != '\n' {
				i++
			}
		case r == '\n' || r == '&' || r == '|':
			endCommand()
		case r == ' ' || r == '\t':
			endWord()
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 {
		return nil, false
	}
	endCommand()
	return all, true
}

// command returns the command of some words, or false if there are no words.
func command(where string, words []string) (Command, bool) {
	into := ""
	words = slices.DeleteFunc(words, func(word string) bool {
		file, redirected := strings.CutPrefix(word, ">")
		if redirected {
			into = file
		}
		return redirected
	})
	if len(words) > 0 && words[0] == "sudo" {
		words = words[1:]
	}
	if len(words) == 0 {
		return Command{}, false
	}
	program := strings.TrimPrefix(words[0], "bin/")
	return Command{Where: where, Program: program, Args: words[1:], Into: into}, true
}
