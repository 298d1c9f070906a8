package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// keeper puts configurations in place.
type keeper struct {
	options
	proc string // "/proc"
	log  *slog.Logger
}

// again is how long a configuration that could not be put in place is left alone: a ConfigMap can get what it
// lacks without a change of the label.
const again = 30 * time.Second

// run puts the configuration of every value of the label in place, or of the first one alone, until ctx is
// done. It ends at the first that cannot be put in place, and whoever deploys it starts it again; unless it
// is to wait.
func (k *keeper) run(ctx context.Context, labels <-chan string) error {
	k.log.Info("wait for the label", "node", k.nodeName, "label", k.nodeLabel)
	var label, told string
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case label = <-labels:
		case <-retry:
		}
		err := k.update(label)
		switch {
		case err == nil && !k.oneshot:
			told, retry = "", nil
		case err == nil || !k.wait:
			return err
		default:
			if retry = time.After(again); err.Error() != told {
				told = err.Error()
				k.log.Error("no change until there is a configuration for the label", "error", err)
			}
		}
	}
}

// update puts the configuration of a value of the label in place, and signals the plugin if it is another
// one, or if an earlier signal has failed. A file beside the target says that a signal is due: it is there
// from before the change until the signal has been sent, so that neither a failure nor the end of this
// process leaves the plugin with its old configuration.
func (k *keeper) update(label string) error {
	name, err := k.choose(label)
	if err != nil {
		return err
	}
	source := "/dev/null"
	if name != "" {
		source = filepath.Join(k.source, name)
	}
	due := k.target + ".signal-due"
	there, err := leads(k.target, source)
	if err != nil {
		return err
	}
	if !there {
		if k.send {
			if err := os.WriteFile(due, nil, 0o600); err != nil {
				return fmt.Errorf("note that a signal is due: %w", err)
			}
		}
		if err := link(source, k.target); err != nil {
			return fmt.Errorf("put the configuration in place: %w", err)
		}
	}
	k.log.Info("configuration", "label", label, "file", source, "changed", !there)
	if !k.send {
		return nil
	}
	switch _, err := os.Stat(due); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("find out if a signal is due: %w", err)
	}
	if err := k.tell(); err != nil {
		return err
	}
	if err := os.Remove(due); err != nil {
		return fmt.Errorf("note that the signal has been sent: %w", err)
	}
	return nil
}

// leads reports whether target leads to source already.
func leads(target, source string) (bool, error) {
	wanted, err := filepath.EvalSymlinks(source)
	if err != nil {
		return false, fmt.Errorf("find the configuration: %w", err)
	}
	now, err := filepath.EvalSymlinks(target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look at --config-file-dst: %w", err)
	}
	return err == nil && now == wanted, nil
}

// link makes target a link to source, in one step.
func link(source, target string) error {
	next := target + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(source, next); err != nil {
		return err
	}
	return os.Rename(next, target)
}

// tell sends the signal to the plugin.
func (k *keeper) tell() error {
	processes, err := find(k.proc, k.process)
	if err != nil {
		return err
	}
	for _, pid := range processes {
		if err := syscall.Kill(pid, syscall.Signal(k.signal)); err != nil {
			return fmt.Errorf("send signal %d to process %d, %s: %w", k.signal, pid, k.process, err)
		}
		k.log.Info("send signal", "signal", k.signal, "process", k.process, "pid", pid)
	}
	return nil
}
