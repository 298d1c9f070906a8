package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every folder with Go code has its place in the tree that CONTRIBUTING draws.
func TestEveryRoomIsInTheTree(t *testing.T) {
	text := contributing(t)
	_, tree, found := strings.Cut(text, "```text\n")
	tree, _, ended := strings.Cut(tree, "```")
	if !found || !ended {
		t.Fatal("CONTRIBUTING.md draws no tree")
	}
	words := strings.FieldsFunc(tree, func(r rune) bool { return strings.ContainsRune(" ,;:\n", r) })
	root, seen := os.DirFS(filepath.Join("..", "..")), map[string]bool{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() &&
			(name == "bin" || entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") && name != "."):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		room := path.Dir(name)
		if seen[room] {
			return nil
		}
		seen[room] = true
		if last := path.Base(room); !slices.ContainsFunc(words, func(word string) bool {
			return word == room || word == last || strings.HasSuffix(room, "/"+word) && strings.HasSuffix(word, last)
		}) {
			t.Errorf("%s is not in the tree", room)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Every step of the walk through one question names a function that is there.
func TestTheWalkIsThere(t *testing.T) {
	steps := regexp.MustCompile("(?m)^\\d+\\. `(\\w+)` in `([\\w./-]+)`").FindAllStringSubmatch(contributing(t),
		-1)
	if len(steps) == 0 || len(steps) > 10 {
		t.Fatalf("%d steps, want one to ten", len(steps))
	}
	for _, step := range steps {
		content, err := os.ReadFile(filepath.Join("..", "..", step[2]))
		if err != nil {
			t.Error(err)
			continue
		}
		if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + step[1] + `\(`).Match(content) {
			t.Errorf("%s has no function %s", step[2], step[1])
		}
	}
}

func contributing(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
