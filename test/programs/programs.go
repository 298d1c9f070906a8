// Package programs builds Tandem's programs for tests. The packages of a test run share the programs, which
// lie in bin/test: the linker of the go command leaves alone what is up to date, so that only the first
// test that asks waits for it.
package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var (
	mu    sync.Mutex
	built = map[string]bool{}
)

// Build builds programs of the folder cmd as "make build" does, but for the stamp of the version, and
// returns the folder that has them by their names.
func Build(t testing.TB, names ...string) (folder string) {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	root := repository(t)
	folder = filepath.Join(root, "bin", "test")
	for _, name := range names {
		if built[name] {
			continue
		}
		build := exec.Command("go", "build", "-tags", "grpcnotrace", "-buildvcs=false",
			"-o", filepath.Join(folder, name), "./cmd/"+name)
		build.Dir = root
		if output, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, output)
		}
		built[name] = true
	}
	return folder
}

// repository returns the root of the repository, above the folder in which the test runs.
func repository(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "tandem-gpu", "main.go")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("find the root of the repository: no folder above has cmd/tandem-gpu")
		}
	}
}
