// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience is how long a daemon may take to end after SIGTERM.
const patience = 10 * time.Second

// Daemon is one of the two plugins. It may be killed and restarted. It is not safe for concurrent use.
type Daemon struct {
	path      string
	args      []string
	variables []string // beside this process's own
	log       *Log

	process *exec.Cmd
	exited  chan struct{} // closed when the process has ended and its log is read
	err     error         // reason of the end, set before exited is closed
}

// Name returns the name of the program.
func (d *Daemon) Name() string { return filepath.Base(d.path) }

// Another returns a second instance of the daemon, not running, as in a rolling update that starts the new
// one first.
func (d *Daemon) Another() *Daemon {
	return &Daemon{path: d.path, args: d.args, variables: d.variables, log: d.log}
}

// From returns the daemon from another folder of programs, not running.
func (d *Daemon) From(bin string) *Daemon {
	other := d.Another()
	other.path = filepath.Join(bin, d.Name())
	return other
}

// Start starts the daemon, which must not be running.
func (d *Daemon) Start() error {
	d.process = exec.Command(d.path, d.args...)
	// The daemons end with the test, even after a panic or timeout.
	d.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	d.process.Env = append(os.Environ(), d.variables...)
	stderr, err := d.process.StderrPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", d.Name(), err)
	}
	if err := d.process.Start(); err != nil {
		return fmt.Errorf("start %s: %w", d.Name(), err)
	}
	d.exited, d.err = make(chan struct{}), nil
	go d.watch(stderr)
	return nil
}

// watch reads the log until the process closes it, and takes the exit status.
func (d *Daemon) watch(stderr io.Reader) {
	defer close(d.exited)
	var last string
	for lines := bufio.NewReader(stderr); ; {
		text, err := lines.ReadString('\n')
		if text = strings.TrimSpace(text); text != "" {
			last = text
			d.log.add(d.Name(), text)
		}
		if err != nil {
			break
		}
	}
	if err := d.process.Wait(); err != nil {
		d.err = fmt.Errorf("%s: %w: %s", d.Name(), err, last)
	}
}

// Exited returns a channel that is closed when the daemon has ended; Err returns the reason.
func (d *Daemon) Exited() <-chan struct{} { return d.exited }

// Err waits for the daemon to end and returns an error with the last line of its log, or nil for exit code 0.
func (d *Daemon) Err() error {
	<-d.exited
	return d.err
}

// Stop signals the daemon to end and waits. It returns an error for an exit code other than 0, or after a
// timeout.
func (d *Daemon) Stop() error {
	if err := d.process.Process.Signal(syscall.SIGTERM); err != nil {
		return d.Err() // already ended
	}
	select {
	case <-d.exited:
		return d.err
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("stop %s: still there %v after SIGTERM", d.Name(), patience), d.Kill())
	}
}

// Running reports whether the daemon has been started and has not ended.
func (d *Daemon) Running() bool {
	select {
	case <-d.exited:
		return false
	default:
		return d.process != nil
	}
}

// Pause suspends the daemon (SIGSTOP) until Resume.
func (d *Daemon) Pause() error { return d.signal(syscall.SIGSTOP) }

// Resume ends a Pause, if any.
func (d *Daemon) Resume() error { return d.signal(syscall.SIGCONT) }

func (d *Daemon) signal(signal syscall.Signal) error {
	if err := d.process.Process.Signal(signal); err != nil {
		return fmt.Errorf("send %v to %s: %w", signal, d.Name(), err)
	}
	return nil
}

// Kill ends the daemon without warning.
func (d *Daemon) Kill() error {
	if err := d.process.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", d.Name(), err)
	}
	<-d.exited
	d.err = nil // a requested end
	return nil
}
