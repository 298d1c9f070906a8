// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/types"
	"slices"
	"strings"
)

// interfaces are the exported interfaces of foreign packages.
type interfaces map[*types.Package][]*types.Interface

// implementedBy returns the methods of a package that implement an interface of the language, or of a foreign
// package that the package imports, itself or through others: by folder, type and name.
func (i interfaces) implementedBy(p *types.Package) map[string]bool {
	foreign := []*types.Interface{types.Universe.Lookup("error").Type().Underlying().(*types.Interface)}
	for imported := range closure(p) {
		foreign = append(foreign, i.of(imported)...)
	}
	found := map[string]bool{}
	for _, t := range namedTypes(p) {
		pointer := types.NewPointer(t)
		methods := types.NewMethodSet(pointer)
		for _, f := range foreign {
			if methods.Len() < f.NumMethods() || methods.Lookup(nil, f.Method(0).Name()) == nil ||
				!types.Implements(pointer, f) {
				continue
			}
			for method := range f.Methods() {
				found[strings.TrimPrefix(p.Path(), module)+"."+t.Obj().Name()+"."+method.Name()] = true
			}
		}
	}
	return found
}

// closure returns the packages that a package imports, itself or through others.
func closure(p *types.Package) map[*types.Package]bool {
	seen := map[*types.Package]bool{}
	for next := slices.Clone(p.Imports()); len(next) > 0; {
		imported := next[0]
		next = next[1:]
		if !seen[imported] {
			seen[imported] = true
			next = append(next, imported.Imports()...)
		}
	}
	return seen
}

// of returns the interfaces of a package, none if the package is of the repository.
func (i interfaces) of(p *types.Package) []*types.Interface {
	all, known := i[p]
	if known || strings.HasPrefix(p.Path(), module) {
		return all
	}
	for _, t := range namedTypes(p) {
		face, ok := t.Underlying().(*types.Interface)
		if ok && t.Obj().Exported() && face.NumMethods() > 0 && face.IsMethodSet() {
			all = append(all, face)
		}
	}
	i[p] = all
	return all
}

// namedTypes returns the types that a package declares, without generic ones.
func namedTypes(p *types.Package) (all []*types.Named) {
	for _, name := range p.Scope().Names() {
		if object, ok := p.Scope().Lookup(name).(*types.TypeName); ok {
			if t, ok := object.Type().(*types.Named); ok && t.TypeParams().Len() == 0 && !object.IsAlias() {
				all = append(all, t)
			}
		}
	}
	return all
}
