// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"go/ast"
	"go/scanner"
	"go/token"
)

// size is how much code there is.
type size struct {
	statements, lines, code, comments, files, packages int
}

// sizeOf adds up files.
func sizeOf(sources []*source) size {
	sum := size{files: len(sources), packages: len(byFolder(sources))}
	for _, s := range sources {
		code, comments := linesOf(s.content)
		sum.statements += statementsOf(s.syntax)
		sum.lines += bytes.Count(s.content, []byte("\n"))
		sum.code += code
		sum.comments += comments
	}
	return sum
}

// linesOf counts the lines with code, and those with nothing but comment.
func linesOf(content []byte) (code, comments int) {
	file := token.NewFileSet().AddFile("", -1, len(content))
	var s scanner.Scanner
	s.Init(file, content, nil, scanner.ScanComments)
	hasCode := map[int]bool{} // by line
	for position, kind, text := s.Scan(); kind != token.EOF; position, kind, text = s.Scan() {
		if kind == token.SEMICOLON && text == "\n" { // inserted at the end of a line
			continue
		}
		first := file.Line(position)
		for line := first; line <= first+bytes.Count([]byte(text), []byte("\n")); line++ {
			hasCode[line] = hasCode[line] || kind != token.COMMENT
		}
	}
	for _, is := range hasCode {
		if is {
			code++
		} else {
			comments++
		}
	}
	return code, comments
}

// statementsOf counts the statements and declarations of a syntax tree. A block is a statement, and a group
// of constants is a declaration.
func statementsOf(file *ast.File) (n int) {
	ast.Inspect(file, func(node ast.Node) bool {
		switch node.(type) {
		case ast.Stmt, ast.Decl:
			n++
		}
		return true
	})
	return n
}
