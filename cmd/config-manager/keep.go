// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// keeper installs configurations.
type keeper struct {
	options
	proc string // "/proc"
	log  *slog.Logger
}

// again is the pause after a failed installation of a configuration: a ConfigMap can change without a change
// of the label.
const again = 30 * time.Second

// run installs the configuration of each value of the label, or only of the first value, until ctx is done.
// It returns the first error, and the container restarts, unless wait is set.
func (k *keeper) run(ctx context.Context, labels <-chan string) error {
	k.log.Info("waiting for the label", "node", k.nodeName, "label", k.nodeLabel)
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
				k.log.Error("no configuration for the label; the current configuration stays", "error", err)
			}
		}
	}
}

// update installs the configuration of a value of the label, and signals the plugin if the configuration
// changed or if an earlier signal failed. A file next to the target marks a pending signal, from before the
// change until after the signal. So neither a failure nor the end of this process leaves the plugin with its
// old configuration.
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
	k.log.Info("configuration selected", "label", label, "file", source, "changed", !there)
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

// leads reports whether target is already a link to source.
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

// link makes target a link to source, atomically.
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
		k.log.Info("sent signal", "signal", k.signal, "process", k.process, "pid", pid)
	}
	return nil
}

// stockPlugin is the name of NVIDIA's plugin, which the GPU operator and NVIDIA's chart pass. The image has
// Tandem's daemon under this name too; it is also found under its own name.
const (
	stockPlugin = "nvidia-device-plugin"
	ownPlugin   = "tandem-gpu"
)

// find returns the processes that were started under a name, in any directory. It returns an error if there
// is none, because the plugin would keep its old configuration.
func find(proc, name string) ([]int, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join(proc, entry.Name(), "cmdline"))
		if err != nil {
			continue // the process has ended
		}
		started, _, _ := strings.Cut(string(line), "\x00")
		program := filepath.Base(started)
		if program == name || name == stockPlugin && program == ownPlugin {
			found = append(found, pid)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("find the process %s, to send it a signal: there is none in this pod; "+
			"the pod has to have shareProcessNamespace", name)
	}
	return found, nil
}
