// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestWorkflowHasEveryPart: the workflow runs each part of "make check" and each other part of .ci/run, but
// for e2e, once.
func TestWorkflowHasEveryPart(t *testing.T) {
	t.Parallel()
	checks := strings.Fields(match(t, "Makefile", `\nCHECKS := (.*)\n`))
	var want []string
	for part := range strings.FieldsSeq(match(t, ".ci/run", `\nparts=\(([a-z0-9 -]+)\)\n`)) {
		switch part {
		case "check":
			want = append(want, checks...)
		case "e2e":
		default:
			want = append(want, part)
		}
	}
	jobs := match(t, ".github/workflows/ci.yml", `(?s)\n +part:\n(( +- [a-z0-9 -]+\n)+)`)
	got := strings.Fields(strings.ReplaceAll(jobs, "- ", " "))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the workflow runs %v, want %v", got, want)
	}
}

// The Makefile, which has the modules linted and tidied, lists every module and no other.
func TestEveryModuleIsListed(t *testing.T) {
	all := modules(t)
	var listed []string
	lists := regexp.MustCompile(`(?m)^(?:MODULES|PINS) *:= (.*)$`).FindAllStringSubmatch(read(t, "Makefile"), -1)
	for _, list := range lists {
		listed = append(listed, strings.Fields(list[1])...)
	}
	slices.Sort(listed)
	if !slices.Equal(listed, all) {
		t.Errorf("modules of the Makefile:\n%s\nwant\n%s", listed, all)
	}
}

// modules returns the folders of all modules, sorted.
func modules(t *testing.T) (all []string) {
	t.Helper()
	for _, name := range repositoryFiles(t) {
		if path.Base(name) == "go.mod" {
			all = append(all, path.Dir(name))
		}
	}
	slices.Sort(all)
	return all
}

// repositoryFiles returns the files of the repository, except for those of others, in folders with the name
// testdata, and those that are built.
func repositoryFiles(t *testing.T) (all []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{"bin", ".git", "testdata"}, entry.Name()):
			return fs.SkipDir
		case entry.Type().IsRegular():
			all = append(all, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// goFiles returns the Go files below folders, without tests.
func goFiles(t *testing.T, folders ...string) (all []string) {
	t.Helper()
	for _, name := range repositoryFiles(t) {
		isBelow := func(folder string) bool { return strings.HasPrefix(name, folder+"/") }
		if isGo(name) && !strings.HasSuffix(name, "_test.go") && slices.ContainsFunc(folders, isBelow) {
			all = append(all, name)
		}
	}
	return all
}

func isGo(name string) bool { return path.Ext(name) == ".go" }

// parsed returns the syntax of a file.
func parsed(t *testing.T, files *token.FileSet, name string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(files, path.Join(root, name), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// The tests of other modules read files outside their module, which the go command's cache of test results
// ignores: the Makefile runs these tests with -count. Benchmarks are never cached.
func TestOtherModulesAreNotCached(t *testing.T) {
	runs := regexp.MustCompile(`cd (?:cmd|deployments|test)/\S+ && (?:[^;\n"]|"[^"\n]*")*go test [^;\n]*`).
		FindAllString(read(t, "Makefile"), -1)
	if len(runs) < 15 {
		t.Fatalf("go test in other modules: %q", runs)
	}
	for _, run := range runs {
		if !strings.Contains(run, " -count=1 ") && !strings.Contains(run, " -bench ") {
			t.Errorf("the Makefile caches the results of %s", run)
		}
	}
}

// sources are the extensions of source files. The linter checks only Go files, and only of linted modules.
var sources = []string{".c", ".go", ".proto", ".s", ".sh"}

const licence = "SPDX-License-Identifier: Apache-2.0"

// TestSourcesNameTheirLicence: a source file, a script without an extension, the Makefile and the Dockerfile
// name their licence in the first two lines. Files of others are in folders with the name testdata.
func TestSourcesNameTheirLicence(t *testing.T) {
	t.Parallel()
	count := map[string]int{}
	for _, name := range repositoryFiles(t) {
		text := read(t, name)
		if !isSource(name, text) {
			continue
		}
		count[path.Ext(name)]++
		lines := append(strings.SplitN(text, "\n", 3), "")
		if !strings.Contains(lines[0]+lines[1], licence) {
			t.Errorf("%s does not name its licence: want %s", name, licence)
		}
	}
	if count[".go"] < 1000 || count[".sh"] < 3 || count[""] < 6 {
		t.Errorf("found only %v", count)
	}
}

// isSource reports whether a file is a source file. A script, the Makefile and the Dockerfile have no
// extension and begin with a comment, unlike texts such as VERSION.
func isSource(name, text string) bool {
	kind := path.Ext(name)
	return slices.Contains(sources, kind) || kind == "" && strings.HasPrefix(text, "#")
}
