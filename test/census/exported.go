// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
)

// exported are the names that packages export, without methods and fields, by the other packages
// that use the name.
type exported struct {
	all, forOne, forNone, forTests []string
}

// users are the folders of packages that use a name of another one, by whether they are tests.
type users map[bool]map[string]bool

// exportedNames returns the exported names of shipped packages.
func (r *repository) exportedNames() (sum exported) {
	names := r.declared()
	for _, s := range r.sources {
		s.addUses(names)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		u := names[name]
		sum.all = append(sum.all, name)
		switch packages, tested := len(u[false]), len(u[true]) > 0; {
		case packages == 1:
			sum.forOne = append(sum.forOne, name)
		case packages == 0 && tested:
			sum.forTests = append(sum.forTests, name)
		case packages == 0:
			sum.forNone = append(sum.forNone, name)
		}
	}
	return sum
}

// declared returns the exported names of shipped packages, with the folder before them.
func (r *repository) declared() map[string]users {
	names := map[string]users{}
	add := func(folder string, name *ast.Ident) {
		if name.IsExported() {
			names[folder+"."+name.Name] = users{false: {}, true: {}}
		}
	}
	for _, s := range r.of(shipped) {
		if s.syntax.Name.Name == "main" {
			continue
		}
		for _, declaration := range s.syntax.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(s.folder, d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						add(s.folder, spec.Name)
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							add(s.folder, name)
						}
					}
				}
			}
		}
	}
	return names
}

// addUses notes the names of other packages that a file uses.
func (s *source) addUses(names map[string]users) {
	folders := map[string]string{} // by the name of the import
	for _, spec := range s.syntax.Imports {
		folder, ok := strings.CutPrefix(importPath(spec), module)
		switch {
		case !ok:
		case spec.Name != nil:
			folders[spec.Name.Name] = folder
		default:
			folders[path.Base(folder)] = folder
		}
	}
	ast.Inspect(s.syntax, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, ok := selector.X.(*ast.Ident)
		if ok && of.Obj == nil { // no variable
			if u := names[folders[of.Name]+"."+selector.Sel.Name]; u != nil {
				u[s.role == tests][s.folder] = true
			}
		}
		return true
	})
}
