// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/tandem-k8s/tandem/test/programs"
)

// The library's environment variables.
const (
	FileVariable   = "NVML_STAND_IN"
	EventsVariable = "NVML_STAND_IN_EVENTS"
)

// Driver is an installed stand-in: a driver root with the library, and the machine that it reports.
type Driver struct {
	Root    string  // the driver root, with the library in /usr/lib64
	Machine Machine // call Update after changes
	file    string
	events  *os.File
}

// library builds the library, once, with make.
var library = sync.OnceValues(func() (string, error) {
	root, err := programs.Repository()
	if err != nil {
		return "", err
	}
	make := exec.Command("make", "--silent", "nvml")
	make.Dir = root
	if output, err := make.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make nvml: %w\n%s", err, output)
	}
	return filepath.Join(root, "bin/nvml/libnvidia-ml.so.1"), nil
})

// Library builds the stand-in and returns its path. It skips the test without a C compiler.
func Library(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"make", "cc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the NVML stand-in is C, and there is no %s here", program)
		}
	}
	path, err := library()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Start installs the stand-in below a temporary driver root, for this process and its children. It skips the
// test without a C compiler.
func Start(t *testing.T, m Machine) *Driver {
	t.Helper()
	path, dir := Library(t), t.TempDir()
	d := &Driver{Root: filepath.Join(dir, "root"), Machine: m, file: filepath.Join(dir, "machine")}
	libraries := filepath.Join(d.Root, "usr/lib64")
	if err := os.MkdirAll(libraries, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(libraries, "libnvidia-ml.so.1")); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "events")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	events, err := os.OpenFile(fifo, os.O_RDWR, 0) // opened for reading too, so that writes never fail
	if err != nil {
		t.Fatal(err)
	}
	d.events = events
	t.Cleanup(func() { _ = d.events.Close() })
	t.Setenv(FileVariable, d.file)
	t.Setenv(EventsVariable, fifo)
	d.Update(t)
	return d
}

// Update writes the current machine for the library.
func (d *Driver) Update(t *testing.T) {
	t.Helper()
	if err := d.Machine.Write(d.file); err != nil {
		t.Fatal(err)
	}
}

// Event types of NVML.
const (
	Xid            = 0x8
	MIGChanged     = 0x100
	RecoveryAction = 0x8000
)

// None is the GPU instance and compute instance of an event about a whole GPU.
const None = 0xffffffff

// Event sends an event to a waiting call. Data is the Xid, 0 for other types.
func (d *Driver) Event(t *testing.T, uuid string, kind, data int, gi, ci uint32) {
	t.Helper()
	d.write(t, fmt.Sprintf("event %s %d %d %d %d\n", uuid, kind, data, gi, ci))
}

// Fail makes waiting for events fail once.
func (d *Driver) Fail(t *testing.T, code int) {
	t.Helper()
	d.write(t, fmt.Sprintf("error %d\n", code))
}

func (d *Driver) write(t *testing.T, line string) {
	t.Helper()
	if _, err := d.events.WriteString(line); err != nil {
		t.Fatal(err)
	}
}
