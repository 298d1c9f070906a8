// SPDX-License-Identifier: Apache-2.0

package play

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// patience is how long a daemon may take to end.
const patience = 10 * time.Second

// daemon is one of the two plugins. A daemon can start again after its end.
type daemon struct {
	name string
	log  string // file
	// launch starts the plugin with a log, and returns the functions that end the plugin and await the end.
	launch func(log *os.File) (end func(), wait func() error, err error)

	end    func()
	exited chan struct{} // closed at the end
	err    error         // reason of the end, set before exited is closed
}

// start starts the plugin, which must not be running.
func (d *daemon) start() error {
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", d.name, err)
	}
	end, wait, err := d.launch(log)
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", d.name, err), log.Close())
	}
	d.end, d.exited, d.err = end, make(chan struct{}), nil
	go func() {
		defer close(d.exited)
		defer log.Close()
		if err := wait(); err != nil {
			d.err = fmt.Errorf("%s: %w: %s", d.name, err, lastLine(d.log))
		}
	}()
	return nil
}

// stop ends the plugin and waits. The error is the plugin's own, or a timeout.
func (d *daemon) stop() error {
	if d.end == nil {
		return nil // not started
	}
	d.end()
	select {
	case <-d.exited:
		return d.err
	case <-time.After(patience):
		return fmt.Errorf("stop %s: it still runs after %v", d.name, patience)
	}
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
func program(path string, args ...string) func(*os.File) (func(), func() error, error) {
	return func(log *os.File) (end func(), wait func() error, err error) {
		process := exec.Command(path, args...)
		process.Stdout, process.Stderr = log, log
		process.SysProcAttr = processAttributes()
		if err := process.Start(); err != nil {
			return nil, nil, err
		}
		return func() { _ = process.Process.Signal(syscall.SIGTERM) }, process.Wait, nil // or it has ended
	}
}

// inProcess returns the launch of a plugin in this process.
func inProcess(run func(context.Context, *slog.Logger) error) func(*os.File) (func(), func() error, error) {
	return func(log *os.File) (end func(), wait func() error, err error) {
		ctx, cancel := context.WithCancel(context.Background())
		wait = func() error {
			err := run(ctx, slog.New(slog.NewTextHandler(log, nil)))
			if ctx.Err() != nil && errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		}
		return cancel, wait, nil
	}
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
