// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	processes "github.com/tandem-k8s/tandem/test/programs"
)

// process is what a container runtime starts, as this test does it.
type process struct {
	Root         string
	ReadOnly     bool
	Mounts       []mount // in this order
	Command      []string
	Dir          string
	Env          []string
	Capabilities []uintptr // all of them where it is nil
}

// mount is a file or folder of the node in the container.
type mount struct {
	From, To string
	ReadOnly bool
}

// asContainer makes this test's program the first of a container; its value is a process.
const asContainer = "TANDEM_IMAGE_TEST_CONTAINER"

// enter becomes a process, in a mount namespace of its own. It returns only when that fails.
func enter(text string) error {
	runtime.LockOSThread() // capabilities are a thread's
	var p process
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part from the other mounts: %w", err)
	}
	if err := bind(mount{From: p.Root, To: p.Root}); err != nil {
		return err
	}
	for _, m := range p.Mounts {
		m.To = filepath.Join(p.Root, m.To)
		if err := bind(m); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", filepath.Join(p.Root, "proc"), "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if p.ReadOnly {
		if err := unix.Mount("", p.Root, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make the root read-only: %w", err)
		}
	}
	if err := errors.Join(unix.Chroot(p.Root), unix.Chdir(p.Dir)); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := p.drop(); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return p.exec()
}

// bind mounts a file or folder at a place that is there.
func bind(m mount) error {
	if err := unix.Mount(m.From, m.To, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", m.From, m.To, err)
	}
	if !m.ReadOnly {
		return nil
	}
	return unix.Mount("", m.To, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
}

// drop leaves the process its capabilities alone.
func (p process) drop() error {
	if p.Capabilities == nil {
		return nil
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if slices.Contains(p.Capabilities, c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return err // EINVAL: a kernel that does not have it
		}
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// exec looks a program up on the PATH of the container, as runtimes do; argv[0] stays as it is in the
// manifest.
func (p process) exec() error {
	for _, variable := range p.Env {
		if path, ok := strings.CutPrefix(variable, "PATH="); ok {
			if err := os.Setenv("PATH", path); err != nil {
				return err
			}
		}
	}
	program, err := exec.LookPath(p.Command[0])
	if err != nil {
		return err
	}
	return syscall.Exec(program, p.Command, p.Env)
}

// running is a started container.
type running struct{ *processes.Process }

// start starts a process in a process namespace of its own, or in that of another container.
func start(t *testing.T, p process, beside *running) *running {
	t.Helper()
	text, err := json.Marshal(p)
	ready(t, err)
	self, err := os.Executable()
	ready(t, err)
	cmd := exec.Command(self)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	if beside != nil {
		cmd = exec.Command("nsenter", "--pid", "--target", strconv.Itoa(beside.Cmd.Process.Pid), self)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		cmd.WaitDelay = time.Millisecond // nsenter's child ends after it
	}
	cmd.Env = []string{asContainer + "=" + string(text), "PATH=" + os.Getenv("PATH")}
	r := &running{processes.Start(t, cmd)}
	t.Cleanup(func() { r.stop(t) })
	return r
}

// stop ends a container as the kubelet does: its first process has to hear of it, and end with success.
func (r *running) stop(t *testing.T) {
	t.Helper()
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", r.Cmd.Process.Pid))
	program := strings.TrimSpace(string(name))
	if program == "nsenter" { // it would not pass a signal on
		r.Kill()
		return
	}
	_ = r.Cmd.Process.Signal(syscall.SIGTERM) // unless it has ended
	if code := r.Exit(t); code != 0 {
		t.Errorf("%s: exit code %d", program, code)
	}
}
