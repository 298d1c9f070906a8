// SPDX-License-Identifier: Apache-2.0

// Package golist asks the go command for packages, and imports the types that their compiled code has.
package golist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
)

// Package is a package in the output of the go command, as it is built for this machine.
type Package struct {
	ImportPath, Dir, Export string
	GoFiles, Deps           []string
	DepOnly                 bool // named by no pattern
}

// Compiled returns the packages that the arguments of "go list" name in a folder, and their dependencies. It
// compiles what has changed.
func Compiled(dir string, arguments ...string) (all []Package, err error) {
	command := exec.Command("go", append([]string{
		"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Deps,DepOnly",
	}, arguments...)...)
	command.Dir, command.Stderr = dir, os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages of %s: %w", dir, err)
	}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p Package
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("list packages of %s: %w", dir, err)
		}
		all = append(all, p)
	}
}

// Importer imports packages from their compiled code.
func Importer(files *token.FileSet, compiled []Package) types.Importer {
	exports := map[string]string{}
	for _, p := range compiled {
		exports[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
}
