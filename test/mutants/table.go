// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed *.txt
var tables embed.FS

// mutant is a fault in the code, with the tests that must fail.
type mutant struct {
	name, why  string
	file       string   // of the repository
	folder     string   // of the package of the tests
	arguments  []string // of go test
	equivalent string   // reason why no test can fail; "" for most mutants
	original   []string // whole lines
	mutated    []string
}

// readTables returns the mutants of all tables.
func readTables() (all []mutant, err error) {
	names, err := fs.Glob(tables, "*.txt")
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, name := range names {
		content, err := tables.ReadFile(name)
		if err != nil {
			return nil, err
		}
		mutants, err := parse(string(content))
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		for _, m := range mutants {
			if known[m.name] {
				return nil, fmt.Errorf("parse %s: mutant %s is defined twice", name, m.name)
			}
			known[m.name] = true
		}
		all = append(all, mutants...)
	}
	return all, nil
}

// parse returns the mutants of a table. Empty lines, and lines that begin with #, have no meaning.
func parse(table string) (all []mutant, err error) {
	for number, line := range strings.Split(table, "\n") {
		key, value, _ := strings.Cut(line, " ")
		if key == "mutant" {
			all = append(all, mutant{name: value})
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if len(all) == 0 || !all[len(all)-1].set(line, key, value) {
			return nil, fmt.Errorf("line %d has no meaning: %q", number+1, line)
		}
	}
	for _, m := range all {
		if m.why == "" || m.file == "" || m.folder == "" || len(m.original) == 0 {
			return nil, fmt.Errorf("mutant %s lacks a line: want why, file, test and the hunk of a diff", m.name)
		}
	}
	return all, nil
}

// set stores a line of a mutant, and reports whether the line has a meaning.
func (m *mutant) set(line, key, value string) bool {
	switch {
	case line[0] == ' ':
		m.original, m.mutated = append(m.original, line[1:]), append(m.mutated, line[1:])
	case line[0] == '-':
		m.original = append(m.original, line[1:])
	case line[0] == '+':
		m.mutated = append(m.mutated, line[1:])
	case key == "why":
		m.why = value
	case key == "file":
		m.file = value
	case key == "equivalent":
		m.equivalent = value
	case key == "test":
		words := strings.Fields(value)
		if len(words) == 0 {
			return false
		}
		m.folder, m.arguments = words[0], words[1:]
	default:
		return false
	}
	return true
}

// apply returns the mutated content of the file. The error says that the code has changed since the mutant
// was written.
func (m *mutant) apply(content string) (string, error) {
	original := "\n" + strings.Join(m.original, "\n") + "\n"
	if n := strings.Count(content, original); n != 1 {
		return "", fmt.Errorf("mutant %s is outdated: its original lines occur %d times in %s, want once",
			m.name, n, m.file)
	}
	mutated := "\n" + strings.Join(append(m.mutated, ""), "\n")
	return strings.Replace(content, original, mutated, 1), nil
}
