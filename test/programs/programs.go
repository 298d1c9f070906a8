// SPDX-License-Identifier: Apache-2.0

// Package programs builds Tandem's programs for tests. The packages of a test run share the programs in
// bin/test: the go command does not relink current programs, so only the first test waits for the linker.
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
// folder of the programs. "make build" links some programs without the C library, which would compile most
// packages again; the tests of the image run those. Other processes may build and start the same programs at
// the same time.
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

// build links a program in a folder from which no program is started, one process at a time, and renames it
// into place: the go command may overwrite a file in place, and a program started at that time would be
// incomplete.
func build(root, folder, name string) error {
	linked := filepath.Join(folder, "link", name)
	if err := os.MkdirAll(filepath.Dir(linked), 0o755); err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	lock, err := os.OpenFile(linked+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	defer lock.Close() // also unlocks
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

// publish copies a linked program into place, if it is new.
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

// lookAt opens the folders of the programs' sources, so that the go command reruns the test after a change of
// the programs instead of using its cached result.
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

// repository returns the root of the repository, a parent of the test's working directory.
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
