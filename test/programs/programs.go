// SPDX-License-Identifier: Apache-2.0

// Package programs builds Tandem's programs for tests. The packages of a test run share the programs, which
// lie in bin/test: the linker of the go command leaves alone what is up to date, so that only the first test
// that asks waits for it.
package programs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

var (
	mu    sync.Mutex
	built = map[string]bool{}
)

// Build builds programs of the folder cmd from the packages that "make test" has compiled, and returns the
// folder that has them by their names. "make build" links some of them without the C library, which would
// compile most packages once more; the image's tests run those. Other processes may build and start the same
// programs meanwhile.
func Build(t testing.TB, names ...string) (folder string) {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	folder = filepath.Join(root, "bin", "test")
	if len(built) == 0 { // once is enough: the go command caches the results of a process as one
		if err := lookAt(root); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		if built[name] {
			continue
		}
		if err := build(root, folder, name); err != nil {
			t.Fatal(err)
		}
		built[name] = true
	}
	return folder
}

// build has one process at a time link a program in a folder that nobody starts it from, and puts it into
// place by a rename: the go command may write over the file in place, and a program that is started just then
// is half of one.
func build(root, folder, name string) error {
	linked := filepath.Join(folder, "link", name)
	if err := os.MkdirAll(filepath.Dir(linked), 0o755); err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	lock, err := os.OpenFile(linked+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	defer lock.Close() // which unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("build %s: lock %s: %w", name, lock.Name(), err)
	}
	command := exec.Command("go", "build", "-tags", "grpcnotrace", "-buildvcs=false", "-o", linked,
		"./cmd/"+name)
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", name, err, output)
	}
	return publish(linked, filepath.Join(folder, name))
}

// publish puts a copy of what was linked into place, unless it is there.
func publish(linked, program string) error {
	newest, err := os.Stat(linked)
	if err != nil {
		return err
	}
	if there, err := os.Stat(program); err == nil && there.Size() == newest.Size() &&
		there.ModTime().Equal(newest.ModTime()) {
		return nil
	}
	content, err := os.ReadFile(linked)
	if err != nil {
		return err
	}
	copied := linked + ".copy"
	if err := os.WriteFile(copied, content, 0o755); err != nil {
		return err
	}
	if err := os.Chtimes(copied, newest.ModTime(), newest.ModTime()); err != nil {
		return err
	}
	return os.Rename(copied, program)
}

// lookAt opens the folders of the programs' sources, so that the go command, which caches a test's result
// until a file changes that the test has looked at, runs the test again after a change of the programs.
func lookAt(root string) error {
	for _, file := range []string{"go.mod", "go.sum"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			return err
		}
	}
	for _, top := range []string{"cluster", "cmd", "coordination", "dra", "plugins", "topology", "version"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(_ string, _ fs.DirEntry, err error) error {
			return err
		})
		if err != nil {
			return fmt.Errorf("look at the sources of the programs: %w", err)
		}
	}
	return nil
}

// repository returns the root of the repository, above the folder in which the test runs.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "tandem-gpu", "main.go")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find the root of the repository: no folder above has cmd/tandem-gpu")
		}
	}
}
