// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// listed is a package in the output of "go list".
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// load returns the packages that match patterns of the go command.
func load(fset *token.FileSet, patterns []string) (all []*code, err error) {
	packages, err := list(patterns)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
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

// list asks the go command for packages and their dependencies, with the types that they export.
func list(patterns []string) (all []listed, err error) {
	command := exec.Command("go", append([]string{
		"list", "-export", "-deps", tags, "-json=ImportPath,Dir,Export,GoFiles,DepOnly",
	}, patterns...)...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("list packages: %w", err)
		}
		all = append(all, p)
	}
}

// check parses a package and determines its types.
func check(fset *token.FileSet, imports types.Importer, p listed) (*code, error) {
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
