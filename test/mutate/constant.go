// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	values "go/constant"
	"go/token"
	"go/types"
	"strconv"
)

// constant adds another value for a literal.
func (f *finder) constant(e ast.Expr, above []ast.Node) {
	value := f.code.info.Types[e].Value
	if value == nil || !f.isLiteral(e) || mustBeConstant(e, above) || f.besideError(above) {
		return
	}
	name, ok := f.typeName(f.code.info.TypeOf(e))
	if !ok {
		return
	}
	f.add(constant, f.text(e)+" in "+f.text(above[len(above)-1]), e,
		f.around(e, "mutation_.Pick["+name+"](SITE, ", ", "+other(value)+")"))
}

// isLiteral reports whether an expression is an integer, a string, true or false.
func (f *finder) isLiteral(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.INT || e.Kind == token.STRING
	case *ast.Ident:
		used := f.code.info.Uses[e]
		return used == types.Universe.Lookup("true") || used == types.Universe.Lookup("false")
	}
	return false
}

// mustBeConstant reports whether the compiler accepts only a constant at a place: a case of a switch, which
// may not occur twice, or the index in a literal of an array.
func mustBeConstant(e ast.Expr, above []ast.Node) bool {
	for i, n := range above {
		switch n := n.(type) {
		case *ast.CaseClause:
			if e.Pos() < n.Colon && !isBare(above[:i]) {
				return true
			}
		case *ast.KeyValueExpr:
			literal, ok := above[i-1].(*ast.CompositeLit)
			_, isMap := literal.Type.(*ast.MapType)
			if ok && !isMap && e.Pos() < n.Colon {
				return true
			}
		}
	}
	return false
}

// besideError reports whether a value is returned with an error: nobody looks at it.
func (f *finder) besideError(above []ast.Node) bool {
	r, ok := above[len(above)-1].(*ast.ReturnStmt)
	if !ok || len(r.Results) < 2 {
		return false
	}
	last := f.code.info.Types[r.Results[len(r.Results)-1]]
	return !last.IsNil() && types.Implements(last.Type, errorType)
}

// errorType is the type error.
var errorType = types.Universe.Lookup("error").Type().Underlying().(*types.Interface)

// other returns another value of the type of a literal, as source. A number becomes greater by one, which the
// greatest number of a type cannot.
func other(value values.Value) string {
	switch value.Kind() {
	case values.Bool:
		return strconv.FormatBool(!values.BoolVal(value))
	case values.String:
		if values.StringVal(value) == "" {
			return `"mutation"`
		}
		return `""`
	}
	step := token.ADD
	if values.Compare(value, token.GEQ, values.MakeInt64(127)) {
		step = token.SUB
	}
	return fmt.Sprint(values.BinaryOp(value, step, values.MakeInt64(1)).ExactString())
}

// typeName returns the name of a basic type in the file.
func (f *finder) typeName(t types.Type) (name string, ok bool) {
	basic, ok := t.Underlying().(*types.Basic)
	if !ok || basic.Info()&types.IsUntyped != 0 || basic.Info()&types.IsComplex != 0 {
		return "", false
	}
	return types.TypeString(t, func(p *types.Package) string {
		if p == f.code.types {
			return ""
		}
		imported := f.importName(p)
		ok = ok && imported != ""
		return imported
	}), ok
}

// importName returns the name of a package in the file, "" unless it is imported.
func (f *finder) importName(p *types.Package) string {
	for _, spec := range f.source.syntax.Imports {
		if path, _ := strconv.Unquote(spec.Path.Value); path == p.Path() {
			if spec.Name != nil {
				return spec.Name.Name
			}
			return p.Name()
		}
	}
	return ""
}
