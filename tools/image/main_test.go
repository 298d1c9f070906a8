package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// built are the three programs, built once for all tests that change nothing about them.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(built.dir)
	os.Exit(code)
}

// programs is a folder with the three programs. Nobody writes to it.
func programs(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "tandem-image"); built.err == nil {
			built.err = build(built.dir)
		}
	})
	ready(t, built.err)
	return built.dir
}

// freshPrograms builds the three programs for one test.
func freshPrograms(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	ready(t, build(bin))
	return bin
}

func ready(t *testing.T, err error) {
	t.Helper()
	switch {
	case errors.Is(err, os.ErrNotExist):
		t.Skipf("no static busybox: %v; install the Debian package busybox-static", err)
	case err != nil:
		t.Fatal(err)
	}
}

func build(bin string) error {
	if _, err := os.Stat(busybox); err != nil {
		return err
	}
	compile := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", bin+"/", "./cmd/tandem", "./cmd/tandem-gpu", "./cmd/tandem-rdma")
	compile.Dir, compile.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}
