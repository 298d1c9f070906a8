// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// grace is how long a daemon may take to end. Then it is killed.
const grace = 10 * time.Second

// daemon is one of the two plugins. A daemon can start again after its end.
type daemon struct {
	name string
	log  string // file
	// launch starts the plugin with a log.
	launch func(log *os.File) (*process, error)

	process *process      // nil before the first start
	exited  chan struct{} // closed at the end
	err     error         // reason of the end, set before exited is closed
}

// process is a started plugin.
type process struct {
	end   func() // asks it to end
	kill  func() // ends it without its consent; nil if nothing can
	wait  func() error
	grace time.Duration // from end to kill
}

// start starts the plugin, which must not be running.
func (d *daemon) start() error {
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", d.name, err)
	}
	started, err := d.launch(log)
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", d.name, err), log.Close())
	}
	d.process, d.exited, d.err = started, make(chan struct{}), nil
	go func() {
		defer close(d.exited)
		defer log.Close()
		if err := started.wait(); err != nil {
			d.err = fmt.Errorf("%s: %w: %s", d.name, err, lastLine(d.log))
		}
	}()
	return nil
}

// stop ends the plugin and waits. The error is the plugin's own, or that the plugin had to be killed.
func (d *daemon) stop() error {
	if d.process == nil {
		return nil // not started
	}
	d.process.end()
	select {
	case <-d.exited:
		return d.err
	case <-time.After(d.process.grace):
	}
	if d.process.kill == nil {
		return fmt.Errorf("stop %s: it still runs after %v", d.name, d.process.grace)
	}
	d.process.kill()
	<-d.exited
	return fmt.Errorf("stop %s: killed, because it still ran after %v; its log is %s", d.name, d.process.grace,
		d.log)
}

// ended returns the reason of an unexpected end, or nil.
func (d *daemon) ended() error {
	select {
	case <-d.exited:
		return errors.Join(fmt.Errorf("%s has ended; its log is %s", d.name, d.log), d.err)
	default:
		return nil
	}
}

// program returns the launch of a program. The process ends with tandem, and has a process group of its own:
// Ctrl-C at the terminal reaches tandem alone, which then ends the process.
func program(path string, args ...string) func(*os.File) (*process, error) {
	return func(log *os.File) (*process, error) {
		c := exec.Command(path, args...)
		c.Stdout, c.Stderr = log, log
		c.SysProcAttr = processAttributes()
		if err := c.Start(); err != nil {
			return nil, err
		}
		send := func(signal os.Signal) { _ = c.Process.Signal(signal) } // or it has ended
		var asked atomic.Bool
		return &process{
			end:  func() { asked.Store(true); send(syscall.SIGTERM) },
			kill: func() { send(syscall.SIGKILL) },
			wait: func() error {
				err := c.Wait()
				if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && asked.Load() &&
					status.Signaled() && status.Signal() == syscall.SIGTERM {
					return nil // it has not come to handle the signal
				}
				return err
			},
			grace: grace,
		}, nil
	}
}

// inProcess returns the launch of a plugin in this process.
func inProcess(run func(context.Context, *slog.Logger) error) func(*os.File) (*process, error) {
	return func(log *os.File) (*process, error) {
		ctx, cancel := context.WithCancel(context.Background())
		wait := func() error {
			err := run(ctx, slog.New(slog.NewTextHandler(log, nil)))
			if ctx.Err() != nil && errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		}
		return &process{end: cancel, wait: wait, grace: grace}, nil
	}
}

// answersAlone returns the number of the plugin's answers without the coordinator, by its log.
func (d *daemon) answersAlone() (n int) {
	content, _ := os.ReadFile(d.log) // none before the first line
	for _, text := range []string{" source=local ", `msg="no answer from the coordinator; `} {
		n += bytes.Count(content, []byte(text))
	}
	return n
}

// lastLine returns the last line of a file, "" without one.
func lastLine(name string) string {
	content, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	content = bytes.TrimSpace(content)
	return string(content[bytes.LastIndexByte(content, '\n')+1:])
}
