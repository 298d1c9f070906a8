// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/test/golist"
)

// tags are those of "make test", whose compiled packages are used.
const tags = "-tags=grpcnotrace"

// module is the prefix of the import paths of all packages.
const module = "github.com/tandem-k8s/tandem/"

// code is a package whose files are parsed and whose types are known.
type code struct {
	name  string // the folder of the repository
	types *types.Package
	info  *types.Info
	files []source
}

// source is a file that a person has written.
type source struct {
	path    string // absolute
	content []byte
	syntax  *ast.File
}

// load returns the packages that match patterns of the go command.
func load(fset *token.FileSet, patterns []string) (all []*code, err error) {
	packages, err := golist.Compiled(".", append([]string{tags}, patterns...)...)
	if err != nil {
		return nil, err
	}
	imports := golist.Importer(fset, packages)
	for _, p := range packages {
		if p.DepOnly {
			continue
		}
		c, err := check(fset, imports, p)
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", p.ImportPath, err)
		}
		all = append(all, c)
	}
	return all, nil
}

// check parses a package and determines its types.
func check(fset *token.FileSet, imports types.Importer, p golist.Package) (*code, error) {
	c := &code{
		name: strings.TrimPrefix(p.ImportPath, module),
		info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}},
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(fset, path, content, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
		if !ast.IsGenerated(file) {
			c.files = append(c.files, source{path, content, file})
		}
	}
	config := types.Config{Importer: imports}
	var err error
	c.types, err = config.Check(p.ImportPath, fset, files, c.info)
	return c, err
}
