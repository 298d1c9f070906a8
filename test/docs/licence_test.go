// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// sources are the extensions of source files. The linter checks only Go files, and only of linted modules.
var sources = []string{".c", ".go", ".proto", ".s", ".sh"}

const licence = "SPDX-License-Identifier: Apache-2.0"

// TestSourcesNameTheirLicence: a source file, a script without an extension, the Makefile and the Dockerfile
// name their licence in the first two lines. Files of others are in folders with the name testdata.
func TestSourcesNameTheirLicence(t *testing.T) {
	t.Parallel()
	count := map[string]int{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{"bin", ".git", "testdata"}, entry.Name()):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		text := read(t, name)
		if !isSource(name, text) {
			return nil
		}
		count[path.Ext(name)]++
		lines := append(strings.SplitN(text, "\n", 3), "")
		if !strings.Contains(lines[0]+lines[1], licence) {
			t.Errorf("%s does not name its licence: want %s", name, licence)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
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
