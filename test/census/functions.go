// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
)

// oneWord matches names such as prefer, Prefer, GPU and GPUs.
var oneWord = regexp.MustCompile(`^([a-z0-9]+|[A-Z][a-z0-9]*|[A-Z0-9]+s?)$`)

// The names that the language, and interfaces of its library and of flags, give to functions and methods.
var (
	givenFunctions = []string{"main", "init"}
	givenMethods   = []string{"Close", "Error", "Is", "Set", "Stat", "String", "Type", "Unwrap", "Write"}
)

// oneWordNames returns the functions with a name of one word that is not given.
func oneWordNames(all []function) (found []string) {
	for _, f := range all {
		given := givenFunctions
		if f.Recv != nil {
			given = givenMethods
		}
		if name := f.Name.Name; oneWord.MatchString(name) && !slices.Contains(given, name) {
			found = append(found, f.id())
		}
	}
	return found
}

// id returns the folder and the name, for a method with its type between them.
func (f function) id() string {
	if f.Recv == nil {
		return f.folder + "." + f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	return f.folder + "." + types.ExprString(receiver) + "." + f.Name.Name
}

// lengthsOf returns the number of lines that nine of ten functions have at most, and the lines of the longest
// function.
func lengthsOf(all []function) (p90, longest int) {
	var lines []int
	for _, f := range all {
		lines = append(lines, f.lines)
	}
	slices.Sort(lines)
	return lines[(len(lines)*9-1)/10], lines[len(lines)-1]
}

// changesInHeads returns the positions of statements in the heads of if and switch that change something,
// except for := and for assignments to err.
func (r *repository) changesInHeads(file *ast.File) (found []string) {
	ast.Inspect(file, func(node ast.Node) bool {
		var head ast.Stmt
		switch s := node.(type) {
		case *ast.IfStmt:
			head = s.Init
		case *ast.SwitchStmt:
			head = s.Init
		case *ast.TypeSwitchStmt:
			head = s.Init
		}
		if changesState(head) {
			found = append(found, r.files.Position(head.Pos()).String())
		}
		return true
	})
	return found
}

func changesState(statement ast.Stmt) bool {
	switch s := statement.(type) {
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE && slices.ContainsFunc(s.Lhs, func(assigned ast.Expr) bool {
			name, ok := assigned.(*ast.Ident)
			return !ok || name.Name != "err" && name.Name != "_"
		})
	default:
		return statement != nil
	}
}
