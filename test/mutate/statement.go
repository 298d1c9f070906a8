// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// statements adds the statements of a list that may be dropped.
func (f *finder) statements(list []ast.Stmt) {
	for _, s := range list {
		if f.droppable(s) {
			f.add(statement, f.text(s), s, f.around(s, "if !mutation_.On(SITE) { ", " }"))
		}
	}
}

// droppable reports whether the code without a statement compiles, and can be wrong.
func (f *finder) droppable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		return !ok || !f.forPeople(call) && !f.locks(call)
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE && slices.ContainsFunc(s.Lhs, func(e ast.Expr) bool {
			name, ok := e.(*ast.Ident)
			return !ok || name.Name != "_"
		})
	case *ast.IncDecStmt, *ast.SendStmt:
		return true
	}
	return false
}

// callee returns the function that a call names, nil if it calls a value.
func (f *finder) callee(call *ast.CallExpr) types.Object {
	switch function := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		return f.code.info.Uses[function]
	case *ast.SelectorExpr:
		return f.code.info.Uses[function.Sel]
	}
	return nil
}

// forPeople reports whether a call logs, panics or makes the text of an error: nothing depends on its words.
func (f *finder) forPeople(call *ast.CallExpr) bool {
	switch function := f.callee(call).(type) {
	case *types.Builtin:
		return function.Name() == "panic"
	case *types.Func:
		switch pathOf(function) {
		case "log/slog", "errors":
			return function.Name() != "Is" && function.Name() != "As" && function.Name() != "AsType"
		case "fmt":
			return function.Name() == "Errorf"
		}
	}
	return false
}

// locks reports whether a call locks or unlocks: without it, tests hang.
func (f *finder) locks(call *ast.CallExpr) bool {
	function, ok := f.callee(call).(*types.Func)
	return ok && pathOf(function) == "sync" &&
		slices.Contains([]string{"Lock", "Unlock", "RLock", "RUnlock"}, function.Name())
}

// pathOf returns the import path of a function's package, "" for the methods of error.
func pathOf(function *types.Func) string {
	if function.Pkg() == nil {
		return ""
	}
	return function.Pkg().Path()
}
