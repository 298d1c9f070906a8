// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"go/ast"
	"slices"
	"strings"
)

// formsFile lists the forms, with names of structs.
//
//go:embed forms.txt
var formsFile string

// form is a thing that structs stand for.
type form struct {
	word  string
	names []string // of structs, beside those that end in the word
}

// forms parses a file with a form on each line.
func forms(file string) (all []form) {
	for line := range strings.Lines(file) {
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			all = append(all, form{words[0], words[1:]})
		}
	}
	return all
}

// has reports whether a struct of a name is of the form.
func (f form) has(name string) bool {
	title := strings.ToUpper(f.word[:1]) + f.word[1:]
	return name == f.word || strings.HasSuffix(name, title) || slices.Contains(f.names, name)
}

// structs returns the structs of a form that files declare, with their folders, sorted.
func (f form) structs(sources []*source) (all []string) {
	for _, s := range sources {
		ast.Inspect(s.syntax, func(node ast.Node) bool {
			if t, ok := node.(*ast.TypeSpec); ok && f.has(t.Name.Name) {
				if _, ok := t.Type.(*ast.StructType); ok {
					all = append(all, s.folder+"."+t.Name.Name)
				}
			}
			return true
		})
	}
	slices.Sort(all)
	return all
}
