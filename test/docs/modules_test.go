// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The Makefile, which has the modules linted and tidied, lists every module and no other.
func TestEveryModuleIsListed(t *testing.T) {
	all := modules(t)
	makefile, err := os.ReadFile(path.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, list := range regexp.MustCompile(`(?m)^(?:MODULES|PINS) *:= (.*)$`).FindAllSubmatch(makefile, -1) {
		listed = append(listed, strings.Fields(string(list[1]))...)
	}
	slices.Sort(listed)
	if !slices.Equal(listed, all) {
		t.Errorf("modules of the Makefile:\n%s\nwant\n%s", listed, all)
	}
}

// modules returns the folders of all modules, sorted.
func modules(t *testing.T) (all []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "bin" || strings.HasPrefix(entry.Name(), ".") && name != "."):
			return fs.SkipDir
		case entry.Name() == "go.mod":
			all = append(all, path.Dir(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
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
