// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// memory is the address space of a test program in KiB. A mutation may allocate without end.
const memory = "8388608"

// run runs a test program in its package's folder, with a directory for temporary files that is removed, and
// returns the output. What the program has started ends with it.
func (w *workshop) run(
	ctx context.Context, p *program, limit time.Duration, variables []string, arguments ...string,
) (output string, cpu time.Duration, err error) {
	temporary := filepath.Join(w.scratch, strconv.FormatInt(w.runs.Add(1), 36)) // short: it contains sockets
	if err := os.Mkdir(temporary, 0o755); err != nil {
		return "", 0, err
	}
	defer os.RemoveAll(temporary)
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, "sh", append([]string{
		"-c", `ulimit -v ` + memory + ` && exec "$0" "$@"`, p.file,
		"-test.short", "-test.failfast", "-test.paniconexit0", "-test.timeout=" + limit.String(),
	}, append(arguments, p.arguments...)...)...)
	command.Dir = filepath.FromSlash(p.folder)
	command.Env = append(append(os.Environ(), "TMPDIR="+temporary), variables...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	var both bytes.Buffer
	command.Stdout, command.Stderr = &both, &both
	err = command.Run()
	if command.Process == nil {
		return "", 0, err
	}
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // what is left of the group
	return both.String(), command.ProcessState.UserTime() + command.ProcessState.SystemTime(), err
}
