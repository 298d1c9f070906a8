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
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// built is a package in the output of "go list", built for this machine.
type built struct {
	ImportPath, Dir, Export string
	GoFiles, Deps           []string
	DepOnly                 bool
}

// modules have shipped code.
var modules = []string{".", "cmd/tandem-scheduler"}

// load returns the folders of the packages that each package is linked with, itself included, and the methods
// of shipped packages that implement a foreign interface.
func load(root string) (linked map[string][]string, foreign map[string]bool, err error) {
	linked, foreign = map[string][]string{}, map[string]bool{}
	for _, name := range modules {
		packages, err := list(filepath.Join(root, name))
		if err != nil {
			return nil, nil, fmt.Errorf("list packages of %s: %w", filepath.Join(root, name), err)
		}
		exports := map[string]string{}
		for _, p := range packages {
			exports[p.ImportPath] = p.Export
		}
		files := token.NewFileSet()
		imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) {
			return os.Open(exports[path])
		})
		interfaces := interfaces{}
		for _, p := range packages {
			folder, own := strings.CutPrefix(p.ImportPath, module)
			if !own || p.DepOnly {
				continue
			}
			linked[folder] = append(p.folders(), folder)
			if roleOf(folder+"/") != shipped {
				continue
			}
			checked, err := p.check(files, imports)
			if err != nil {
				return nil, nil, fmt.Errorf("check %s: %w", p.ImportPath, err)
			}
			maps.Copy(foreign, interfaces.implementedBy(checked))
		}
	}
	return linked, foreign, nil
}

// list asks the go command for the packages of a module and their dependencies, compiled.
func list(dir string) (all []built, err error) {
	command := exec.Command("go", "list", "-export", "-deps",
		"-json=ImportPath,Dir,Export,GoFiles,Deps,DepOnly", "./...")
	command.Dir, command.Stderr = dir, os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p built
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// folders returns the folders of the own packages that a package depends on.
func (p *built) folders() (all []string) {
	for _, path := range p.Deps {
		if folder, own := strings.CutPrefix(path, module); own {
			all = append(all, folder)
		}
	}
	return all
}

// check determines the types of a package.
func (p *built) check(files *token.FileSet, imports types.Importer) (*types.Package, error) {
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
