// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// built is the folder of the programs that are built once, for all tests that change nothing about them, and
// of the image's root with them.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	if text := os.Getenv(asContainer); text != "" {
		fmt.Fprintln(os.Stderr, "start the container:", enter(text))
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(built.dir)
	os.Exit(code)
}

// programs is a folder with the programs. Nobody writes to it.
func programs(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "tandem-image"); built.err == nil {
			built.err = build(filepath.Join(built.dir, "bin"), "0")
		}
	})
	ready(t, built.err)
	return filepath.Join(built.dir, "bin")
}

// freshPrograms builds the programs for one test.
func freshPrograms(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	ready(t, build(bin, "0"))
	return bin
}

func ready(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// standIn is a static program in busybox's place, for tests that start nothing in the image.
func standIn(bin string) string { return filepath.Join(bin, "tandem") }

// busyboxPath is the static busybox that BUSYBOX names, else that of Debian, as for make.
func busyboxPath() string { return cmp.Or(os.Getenv("BUSYBOX"), "/bin/busybox") }

// shell is the static busybox of this machine. It skips the test where there is none.
func shell(t *testing.T) string {
	t.Helper()
	busybox := busyboxPath()
	if _, err := os.Stat(busybox); err != nil {
		t.Skipf("nothing can be started in the image: %v; install the Debian package busybox-static", err)
	}
	return busybox
}

func build(bin, cgo string) error {
	compile := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-buildvcs=false", "-o", bin+"/",
		"./cmd/tandem", "./cmd/tandem-gpu", "./cmd/tandem-rdma", "./cmd/tandem-dra", "./cmd/config-manager")
	compile.Dir, compile.Env = "../../..", append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

func TestTagOfVersion(t *testing.T) {
	got := withTag("tandem", map[string]string{labelVersion: "0.2.0-dev+0123456789ab.modified"})
	if got != "tandem:0.2.0-dev_0123456789ab.modified" {
		t.Errorf("the image is %s", got)
	}
}
