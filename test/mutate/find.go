// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
)

// finder finds the sites of a function, or of the variables that a file declares.
type finder struct {
	fset     *token.FileSet
	code     *code
	source   source
	function string
	seen     map[identity]int
	sites    []*site
}

// find returns all sites of a package, in the order of its files.
func find(fset *token.FileSet, c *code) (all []*site) {
	seen := map[identity]int{}
	for _, file := range c.files {
		for _, declaration := range file.syntax.Decls {
			f := finder{fset, c, file, nameOf(declaration), seen, nil}
			ast.PreorderStack(declaration, nil, f.visit)
			all = append(all, f.sites...)
		}
	}
	return all
}

// variables is the name of what initializes the variables of a package.
const variables = "var"

// nameOf returns the name of a function, with the type of a method.
func nameOf(declaration ast.Decl) string {
	function, ok := declaration.(*ast.FuncDecl)
	if !ok {
		return variables
	}
	if function.Recv == nil || len(function.Recv.List) == 0 {
		return function.Name.Name
	}
	receiver := function.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	return types.ExprString(receiver) + "." + function.Name.Name
}

// visit adds the sites of a node, and reports whether the nodes below it may have some. An outer site is
// added before those within it.
func (f *finder) visit(node ast.Node, above []ast.Node) bool {
	switch n := node.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.CallExpr:
		return !f.forPeople(n)
	case *ast.ArrayType, *ast.StructType, *ast.FuncType:
		return false
	case *ast.IfStmt:
		f.condition(n.Cond)
	case *ast.ForStmt:
		f.condition(n.Cond)
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CommClause:
		f.statements(n.Body)
	case *ast.CaseClause:
		if isBare(above) {
			for _, e := range n.List {
				f.condition(e)
			}
		}
		f.statements(n.Body)
	case *ast.BasicLit, *ast.Ident:
		f.constant(n.(ast.Expr), above)
	}
	return true
}

// isBare reports whether the last switch above has no value that its cases are compared with.
func isBare(above []ast.Node) bool {
	s, ok := above[len(above)-2].(*ast.SwitchStmt)
	return ok && s.Tag == nil
}

// add adds a site for a node, known by a text.
func (f *finder) add(kind, text string, node ast.Node, edits []edit) {
	id := identity{Package: f.code.name, Function: f.function, Kind: kind, Text: abridge(text)}
	f.seen[id]++
	id.Occurrence = f.seen[id]
	f.sites = append(f.sites, &site{result: result{
		identity: id, File: f.code.name + "/" + filepath.Base(f.source.path),
		Line: f.fset.Position(node.Pos()).Line, Outcome: notReached,
	}, path: f.source.path, edits: edits})
}

// text returns the source of a node.
func (f *finder) text(node ast.Node) string {
	return string(f.source.content[f.offset(node.Pos()):f.offset(node.End())])
}

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }

// around returns the edits that put text before and after a node.
func (f *finder) around(node ast.Node, before, after string) []edit {
	return []edit{
		{at: f.offset(node.Pos()), text: before},
		{at: f.offset(node.End()), text: after, closes: true},
	}
}

// condition adds the negation of an expression, unless its value is known to the compiler.
func (f *finder) condition(e ast.Expr) {
	if e == nil || f.code.info.Types[e].Value != nil {
		return
	}
	switch f.code.info.Types[e].Type {
	case types.Typ[types.Bool], types.Typ[types.UntypedBool]:
		f.add(condition, f.text(e), e, f.around(e, "mutation_.Not(SITE, ", ")"))
	}
}

// comparisons are the functions that have a comparison and its mutation.
var comparisons = map[token.Token]string{
	token.LSS: "Less", token.LEQ: "LessEqual", token.GTR: "Greater", token.GEQ: "GreaterEqual",
}

// binary adds the negations of operands, and the boundary of a comparison of integers.
func (f *finder) binary(n *ast.BinaryExpr) {
	if f.code.info.Types[n].Value != nil {
		return
	}
	if n.Op == token.LAND || n.Op == token.LOR {
		f.operand(n.X)
		f.operand(n.Y)
		return
	}
	number, ok := f.code.info.TypeOf(n.X).Underlying().(*types.Basic)
	if function := comparisons[n.Op]; function != "" && ok && number.Info()&types.IsInteger != 0 {
		edits := f.around(n, "mutation_."+function+"(SITE, ", ")")
		operator := edit{at: f.offset(n.OpPos), cut: len(n.Op.String()), text: ","}
		f.add(boundary, f.text(n), n, append(edits, operator))
	}
}

// operand adds the negation of an operand that is not itself made of operands.
func (f *finder) operand(e ast.Expr) {
	if b, ok := ast.Unparen(e).(*ast.BinaryExpr); ok && (b.Op == token.LAND || b.Op == token.LOR) {
		return
	}
	f.condition(e)
}
