// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryRoomIsInTheTree: the tree of CONTRIBUTING has each folder with Go code, those of test without
// their parts, and no other.
func TestEveryRoomIsInTheTree(t *testing.T) {
	var names []string
	for line := range strings.Lines(treeOf(t)) {
		column, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
		names = append(names, strings.Split(column, ", ")...)
	}
	used := map[string]bool{}
	for folder, hasCode := range folders(t) {
		last := path.Base(folder)
		isNamed := func(name string) bool {
			return name == folder || name == last ||
				strings.HasSuffix(folder, "/"+name) && strings.HasSuffix(name, last)
		}
		part := slices.ContainsFunc(names, func(name string) bool { // of a folder of test
			return strings.HasPrefix(folder, "test/"+name+"/")
		})
		if hasCode && !part && !slices.ContainsFunc(names, isNamed) {
			t.Errorf("%s is not in the tree", folder)
		}
		for _, name := range names {
			used[name] = used[name] || isNamed(name)
		}
	}
	for _, name := range names {
		if !used[name] {
			t.Errorf("the tree has %s, which is no folder", name)
		}
	}
}

// treeOf returns the tree of the layout.
func treeOf(t *testing.T) string {
	t.Helper()
	return match(t, "CONTRIBUTING.md", "(?s)```text\n(.*?)```")
}

// sectionOf returns a section of CONTRIBUTING.
func sectionOf(t *testing.T, title string) string {
	t.Helper()
	return match(t, "CONTRIBUTING.md", `(?s)\n## `+title+`\n(.*?)\n## `)
}

// folders returns all folders of the repository, and whether they have Go code.
func folders(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, name := range repositoryFiles(t) {
		for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
			all[folder] = all[folder] || isGo(name) && folder == path.Dir(name)
		}
	}
	return all
}

// TestWalks: every walk through the code has at most ten steps. Each step names a function that is there, and
// so does the text.
func TestWalks(t *testing.T) {
	section := sectionOf(t, "Walks")
	walks := strings.Split(section, "\n### ")[1:]
	if len(walks) < 3 {
		t.Fatalf("%d walks", len(walks))
	}
	code := productCode(t)
	for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(section, -1) {
		if !regexp.MustCompile(`(?m)^(?:func (?:\([^)]*\) )?|var )` + name[1] + `\b`).MatchString(code) {
			t.Errorf("the walks name %s, which is no function", name[1])
		}
	}
	for _, walk := range walks {
		title, text, _ := strings.Cut(walk, "\n")
		steps := regexp.MustCompile("(?m)^\\d+\\. `(\\w+)` in `([\\w./-]+)`").FindAllStringSubmatch(text, -1)
		if len(steps) == 0 || len(steps) > 10 {
			t.Errorf("%s: %d steps, want one to ten", title, len(steps))
		}
		for _, step := range steps {
			if !hasFunction(t, step[1], step[2]) {
				t.Errorf("%s: %s has no function %s", title, step[2], step[1])
			}
		}
	}
}

// TestPromises: the tests of the promises are there.
func TestPromises(t *testing.T) {
	section := sectionOf(t, "Promises")
	rows := regexp.MustCompile("(?m)^\\| .* \\| `(Test\\w+)` in `([\\w/]+)`").FindAllStringSubmatch(section, -1)
	if len(rows) < 10 {
		t.Fatalf("%d promises", len(rows))
	}
	for _, row := range rows {
		files, _ := filepath.Glob(filepath.Join(root, row[2], "*_test.go"))
		if !slices.ContainsFunc(files, func(file string) bool {
			name, err := filepath.Rel(root, file)
			return err == nil && hasFunction(t, row[1], name)
		}) {
			t.Errorf("%s has no test %s", row[2], row[1])
		}
	}
}

// hasFunction reports whether a file has a function or method.
func hasFunction(t *testing.T, name, file string) bool {
	t.Helper()
	return regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + name + `\(`).MatchString(read(t, file))
}

// What a new vendor touches is told whole: each file that is named exists, and no other file of the product
// imports a vendor's package or holds a vendor's name by itself.
func TestANewVendorTouchesTheFilesThatAreNamed(t *testing.T) {
	section, named := sectionOf(t, "A new vendor"), map[string]bool{}
	files := regexp.MustCompile("`([\\w./-]+/[\\w.-]+\\.(?:go|json|tpl))`").FindAllStringSubmatch(section, -1)
	for _, match := range files {
		if _, err := os.Stat(filepath.Join(root, match[1])); err != nil {
			t.Error(err)
		}
		named[match[1]] = true
	}
	if rows := strings.Count(section, "\n| `"); rows > 8 {
		t.Errorf("%d files, want eight at the most", rows)
	}
	naming := regexp.MustCompile(`"(?:amd|amdgpu|nvidia)"|plugins/gpu/(?:amd|nvidia)"`)
	for _, name := range goFiles(t, "cmd", "coordination", "plugins", "topology") {
		if named[name] || ofVendor.MatchString(name) {
			continue
		}
		for line := range strings.Lines(read(t, name)) {
			code, _, _ := strings.Cut(line, "//")
			if naming.MatchString(code) {
				t.Errorf("%s names a vendor, and CONTRIBUTING.md does not name the file: %s", name, code)
			}
		}
	}
}

// ofVendor are the files that are one vendor's alone.
var ofVendor = regexp.MustCompile(`^(?:plugins/gpu/(?:amd|nvidia)|cmd/config-manager)/|/(?:amd|nvidia)\.go$`)

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
	lines, top := map[string]int{}, ""
	for number, line := range strings.Split(treeOf(t), "\n") {
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
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
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
