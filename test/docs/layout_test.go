// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLayoutPointsDown: no package of the product imports a package that stands above it in the tree of
// CONTRIBUTING. Test files are free.
func TestLayoutPointsDown(t *testing.T) {
	lines := linesOfPackages(t)
	for name, line := range lines {
		for _, imported := range importsOf(t, name) {
			if above, known := lines[imported]; known && above < line {
				t.Errorf("%s imports %s, which is above it in CONTRIBUTING.md", name, imported)
			}
		}
	}
}

// linesOfPackages returns the line of each package of the product in the tree.
func linesOfPackages(t *testing.T) map[string]int {
	t.Helper()
	_, tree, _ := strings.Cut(contributing(t), "```text\n")
	tree, _, _ = strings.Cut(tree, "```")
	lines, top := map[string]int{}, ""
	for number, line := range strings.Split(tree, "\n") {
		names := strings.Split(regexp.MustCompile(`^ *(?:[^ ,]+(?:, )?)*`).FindString(line), ", ")
		if !strings.HasPrefix(line, " ") {
			top = names[0]
		}
		for _, name := range names {
			if folder := folderOf(top, strings.TrimSpace(name)); folder != "" && top != "test" {
				lines[folder] = number
			}
		}
	}
	if len(lines) < 40 {
		t.Fatalf("%d packages in the tree of CONTRIBUTING.md", len(lines))
	}
	return lines
}

// folderOf returns the folder that a name of the tree stands for, below an entry without indentation; "" for
// none. A name may omit the first folders of the entry or of the names above it.
func folderOf(top, name string) string {
	for _, prefix := range []string{top, path.Dir(top), path.Join(top, "gpu"), ""} {
		if goFiles := filesOf(path.Join(prefix, name)); name != "" && len(goFiles) > 0 {
			return path.Join(prefix, name)
		}
	}
	return ""
}

// filesOf returns the files of a package without its tests.
func filesOf(folder string) []string {
	files, _ := filepath.Glob(filepath.Join(root, folder, "*.go"))
	var product []string
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			product = append(product, file)
		}
	}
	return product
}

// importsOf returns the folders of this repository that a package imports.
func importsOf(t *testing.T, folder string) (folders []string) {
	t.Helper()
	for _, file := range filesOf(folder) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, content, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			imported := strings.Trim(spec.Path.Value, `"`)
			if own, ok := strings.CutPrefix(imported, "github.com/tandem-k8s/tandem/"); ok {
				folders = append(folders, own)
			}
		}
	}
	return folders
}
