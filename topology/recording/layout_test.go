package recording

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLayout(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "sys")
	if err := parse(t, example).Layout(dir); err != nil {
		t.Fatal(err)
	}
	sys := os.DirFS(dir)
	for name, want := range map[string]string{
		"a/b/quoted": "tab\tand \"quotes\"\n", "a/b/with space/b/plain": "0x060400\n",
	} {
		if got, err := fs.ReadFile(sys, name); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", name, got, err, want)
		}
	}
	if target, err := fs.ReadLink(sys, "a/b/up"); err != nil || target != "../c/d:1.0" {
		t.Errorf("a/b/up leads to %q, %v", target, err)
	}
	if entries, err := fs.ReadDir(sys, "c/d:1.0"); err != nil || len(entries) != 0 {
		t.Errorf("c/d:1.0 holds %v, %v; want nothing", entries, err)
	}
}

func TestLayoutRefuses(t *testing.T) {
	t.Parallel()
	m := parse(t, example)
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Layout(full); err == nil || !strings.HasSuffix(err.Error(), ": the folder is not empty") {
		t.Errorf("a folder that is not empty: %v", err)
	}
	if err := m.Layout(filepath.Join(full, "precious")); err == nil {
		t.Error("a file in place of the folder: want an error")
	}
}
