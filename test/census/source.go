// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// module is the prefix of the import paths of all packages. What follows is the folder.
const module = "github.com/tandem-k8s/tandem/"

// role is what code is for.
type role string

// The roles of hand-written code. A figure is of shipped code unless its name says otherwise.
const (
	shipped role = "shipped" // runs on nodes, in a cluster, or at an operator's prompt
	lab     role = "lab"     // cmd/tandem-lab with its packages, which try Tandem without hardware
	release role = "release" // builds images and archives
	tests   role = "tests"
)

// folders have a role, with all folders below them. The first that fits decides.
var folders = []struct {
	folder string
	role   role
}{
	{"cmd/tandem-lab", lab}, {"test/playground", lab}, {"test/simulate", lab},
	{"deployments/release", release}, {"test", tests},
}

// roleOf returns the role of a file, by its path below the root of the repository.
func roleOf(file string) role {
	if strings.HasSuffix(file, "_test.go") {
		return tests
	}
	for _, f := range folders {
		if strings.HasPrefix(file, f.folder+"/") {
			return f.role
		}
	}
	return shipped
}

// source is a Go file that a person has written.
type source struct {
	folder  string // below the root of the repository, of the package or of its external tests
	role    role
	content []byte
	syntax  *ast.File
}

// repository has the hand-written code of all modules, whatever system it is for, and the words of documents.
type repository struct {
	files   *token.FileSet
	sources []*source
	words   int
}

// readRepository reads all below a root, except for hidden folders, bin, and testdata.
func readRepository(root fs.FS) (*repository, error) {
	r := &repository{files: token.NewFileSet()}
	err := fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if file == "bin" || name == "testdata" || strings.HasPrefix(name, ".") && file != "." {
				return fs.SkipDir
			}
			return nil
		case path.Ext(name) != ".go" && path.Ext(name) != ".md":
			return nil
		}
		content, err := fs.ReadFile(root, file)
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		return r.add(file, content)
	})
	return r, err
}

// add adds a document, or a Go file unless it is generated.
func (r *repository) add(file string, content []byte) error {
	if path.Ext(file) == ".md" {
		r.words += len(strings.Fields(string(content)))
		return nil
	}
	syntax, err := parser.ParseFile(r.files, file, content, parser.ParseComments)
	if err != nil {
		return fmt.Errorf("parse %s: %w", file, err)
	}
	if !ast.IsGenerated(syntax) {
		r.sources = append(r.sources, &source{path.Dir(file), roleOf(file), content, syntax})
	}
	return nil
}

// of returns the files with one of the roles.
func (r *repository) of(roles ...role) (all []*source) {
	for _, s := range r.sources {
		if slices.Contains(roles, s.role) {
			all = append(all, s)
		}
	}
	return all
}

// byFolder returns files by their folders.
func byFolder(sources []*source) map[string][]*source {
	all := map[string][]*source{}
	for _, s := range sources {
		all[s.folder] = append(all[s.folder], s)
	}
	return all
}

func importPath(spec *ast.ImportSpec) string {
	name, _ := strconv.Unquote(spec.Path.Value) // which the parser has checked
	return name
}

// function is a declared function or method.
type function struct {
	*ast.FuncDecl
	folder string
	lines  int // from func to the last brace
}

// functions returns the functions and methods that files declare.
func (r *repository) functions(sources []*source) (all []function) {
	for _, s := range sources {
		for _, declaration := range s.syntax.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok {
				lines := r.files.Position(f.End()).Line - r.files.Position(f.Pos()).Line + 1
				all = append(all, function{f, s.folder, lines})
			}
		}
	}
	return all
}
