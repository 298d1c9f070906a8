// SPDX-License-Identifier: Apache-2.0

// Package programs builds Tandem's programs for tests. All packages share the programs in bin/test. The go
// command links only outdated programs, so that only the first test waits.
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

// Build builds programs of the directory cmd and returns the directory of the results. Build uses the
// packages that "make test" has compiled. "make build" links some programs without the C library, which would
// compile most packages again; the tests of the image cover these programs. Other processes may call Build
// and start the same programs at the same time.
func Build(t testing.TB, names ...string) (folder string) {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	root, err := Repository()
	if err != nil {
		t.Fatal(err)
	}
	folder = filepath.Join(root, "bin", "test")
	if len(built) == 0 { // once for each test process
		if err := openSources(root); err != nil {
			t.Fatal(err)
		}
		// A program has the garbage collector of a node, whatever "make test" gives to the tests.
		if err := errors.Join(os.Unsetenv("GOGC"), os.Unsetenv("GOMEMLIMIT")); err != nil {
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

// build links a program in a separate directory, under a lock, and publishes the result by a rename. The go
// command may overwrite a file in place, so a concurrent start would fail.
func build(root, folder, name string) error {
	linked := filepath.Join(folder, "link", name)
	if err := os.MkdirAll(filepath.Dir(linked), 0o755); err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	lock, err := os.OpenFile(linked+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	defer lock.Close() // releases the lock
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

// publish puts a linked program in place unless it is there. The go command changes the time of a
// program that is up to date: looked at by this process, the file would make each cached result outdated.
func publish(linked, program string) error {
	const script = `cmp -s "$1" "$2" || { cp "$1" "$1.copy" && mv "$1.copy" "$2"; }`
	if output, err := exec.Command("sh", "-c", script, "sh", linked, program).CombinedOutput(); err != nil {
		return fmt.Errorf("publish %s: %w\n%s", program, err, output)
	}
	return nil
}

// openSources opens the directories of all sources. The go command caches the result of a test until a file
// changes that the test has opened, so a change of the programs invalidates the result.
func openSources(root string) error {
	for _, file := range []string{"go.mod", "go.sum"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			return err
		}
	}
	for _, top := range []string{"cmd", "coordination", "plugins", "topology"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(_ string, _ fs.DirEntry, err error) error {
			return err
		})
		if err != nil {
			return fmt.Errorf("open the sources of the programs: %w", err)
		}
	}
	return nil
}

// Repository returns the root of the repository above the working directory.
func Repository() (string, error) {
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
