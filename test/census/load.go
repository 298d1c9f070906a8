// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/test/golist"
)

// modules have shipped code.
var modules = []string{".", "cmd/tandem-scheduler"}

// load returns the folders of the packages that each package is linked with, itself included, and the methods
// of shipped packages that implement a foreign interface.
func load(root string) (linked map[string][]string, foreign map[string]bool, err error) {
	linked, foreign = map[string][]string{}, map[string]bool{}
	for _, name := range modules {
		packages, err := golist.Compiled(filepath.Join(root, name), "./...")
		if err != nil {
			return nil, nil, err
		}
		files := token.NewFileSet()
		imports, interfaces := golist.Importer(files, packages), interfaces{}
		for _, p := range packages {
			folder, own := strings.CutPrefix(p.ImportPath, module)
			if !own || p.DepOnly {
				continue
			}
			linked[folder] = []string{folder}
			for _, path := range p.Deps {
				if dependency, own := strings.CutPrefix(path, module); own {
					linked[folder] = append(linked[folder], dependency)
				}
			}
			if roleOf(folder+"/") != shipped {
				continue
			}
			checked, err := check(p, files, imports)
			if err != nil {
				return nil, nil, fmt.Errorf("check %s: %w", p.ImportPath, err)
			}
			maps.Copy(foreign, interfaces.implementedBy(checked))
		}
	}
	return linked, foreign, nil
}

// check determines the types that a package declares.
func check(p golist.Package, files *token.FileSet, imports types.Importer) (*types.Package, error) {
	var syntax []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		syntax = append(syntax, file)
	}
	config := types.Config{Importer: imports, IgnoreFuncBodies: true}
	return config.Check(p.ImportPath, files, syntax, nil)
}
