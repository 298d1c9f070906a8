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

// Daemon is one of the two plugins. It may be killed and started again; its methods are for one goroutine.
type Daemon struct {
	path      string
	args      []string
	variables []string // beside this process's own
	account   string   // folder with what a pod's service account is given; "" for none
	log       *Log

	process *exec.Cmd
	exited  chan struct{} // closed when the process has ended and its log is read
	err     error         // why it ended, once exited is closed
}

// Name is the name of the program.
func (d *Daemon) Name() string { return filepath.Base(d.path) }

// Another is a second instance of the daemon, as in a rolling update that starts the new one first. It is not
// running.
func (d *Daemon) Another() *Daemon {
	return &Daemon{path: d.path, args: d.args, variables: d.variables, account: d.account, log: d.log}
}

// From is the daemon as another folder has it built. It is not running.
func (d *Daemon) From(bin string) *Daemon {
	other := d.Another()
	other.path = filepath.Join(bin, d.Name())
	return other
}

// Start starts the daemon, which must not be running.
func (d *Daemon) Start() error {
	d.process = command(d.account, d.path, d.args...)
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

// watch reads the log until the process has closed it, and takes the exit status.
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

// Exited is closed when the daemon has ended; Err tells why.
func (d *Daemon) Exited() <-chan struct{} { return d.exited }

// Err waits for the daemon to end and returns an error with the last line of its log, or nil for exit code 0.
func (d *Daemon) Err() error {
	<-d.exited
	return d.err
}

// Stop asks the daemon to end and waits until it has. Ending with another exit code than 0 is an error, and
// so is taking long.
func (d *Daemon) Stop() error {
	if err := d.process.Process.Signal(syscall.SIGTERM); err != nil {
		return d.Err() // it had ended before
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

// Pause stops the daemon where it is (SIGSTOP), and Resume lets it go on.
func (d *Daemon) Pause() error { return d.signal(syscall.SIGSTOP) }

// Resume is the end of Pause. A daemon that was not paused goes on as before.
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
	d.err = nil // it did as it was told
	return nil
}
