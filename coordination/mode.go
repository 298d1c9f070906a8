// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// Mode is the way in which a node's devices are assigned: by the device plugins or by the DRA driver. A node
// is in one mode.
//
// Every daemon holds a lock file of its mode in the run directory, shared with daemons of the same mode: the
// two device plugins, or two DRA drivers during an update. A daemon first takes its own lock and then checks
// the lock of the other mode. If two daemons start at the same time, at least one detects the conflict. The
// kernel releases the lock when the process ends.
type Mode string

// Modes of a node.
const (
	DevicePlugin Mode = "device-plugin"
	DRA          Mode = "dra"
)

// DRADriver is the name of the DRA driver. The driver's directory is plugins/<DRADriver> in the kubelet's
// directory.
const DRADriver = "tandem.dev"

// modes lists all modes.
var modes = []Mode{DevicePlugin, DRA}

// ModeError means that a node is in another mode.
type ModeError struct {
	Mode Mode   // the mode of the node
	Seen string // the evidence, for people
}

// Error names the running daemons and the steps to change the mode.
func (e *ModeError) Error() string {
	running, remove := "the device plugins allocate this node's devices", "tandem-gpu and tandem-rdma"
	if e.Mode == DRA {
		running, remove = "the DRA driver allocates this node's devices", "tandem-dra"
	}
	return fmt.Sprintf("%s (%s), and a node has only one mode: first remove %s from this node "+
		"(running pods keep their devices; see docs/dra.md)", running, e.Seen, remove)
}

// modeLock returns the lock file of a mode in a run directory.
func modeLock(runDir string, m Mode) string { return filepath.Join(runDir, "mode-"+string(m)+".lock") }

// enterMode puts this process into a mode until leave is called or the process ends. It returns a *ModeError
// if another process is in another mode, in this run directory or one of the node's other run directories.
func enterMode(own Mode, runDir string, others ...string) (leave func(), err error) {
	name := modeLock(runDir, own)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("enter mode %s: %w", own, err)
	}
	// A process that checks the lock holds the lock exclusively for a moment, so enterMode waits.
	if err := system.Flock(file, syscall.LOCK_SH); err != nil {
		file.Close()
		return nil, fmt.Errorf("enter mode %s: lock %s: %w", own, name, err)
	}
	for _, dir := range append([]string{runDir}, others...) {
		for _, other := range RunningModes(dir) {
			if other.Mode != own {
				file.Close()
				return nil, other
			}
		}
	}
	return func() { file.Close() }, nil
}

// RunningModes returns the modes of running processes according to a run directory, as the errors of a
// process of another mode; none if the directory is not readable.
func RunningModes(runDir string) (running []*ModeError) {
	for _, m := range modes {
		if lock := modeLock(runDir, m); isLocked(lock) {
			running = append(running, &ModeError{Mode: m, Seen: lock + " is held"})
		}
	}
	return running
}

// isLocked reports whether a daemon holds a lock. A check holds the lock exclusively for a moment, so checks
// take turns: otherwise a check takes another check for a daemon. The lock of the directory makes the turns,
// because the DRA driver has no right to write to a run directory in the kubelet's directory.
func isLocked(name string) bool {
	if turn, err := os.Open(filepath.Dir(name)); err == nil {
		defer turn.Close() // after the file
		_ = system.Flock(turn, syscall.LOCK_EX)
	}
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	return errors.Is(system.Flock(file, syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// Enter puts this process into a mode until leave is called, and prepares the run directory. The error is a
// *ModeError if the node is in another mode, by the lock files in all possible run directories or, for
// older device plugins without lock files, by the answers of the plugins.
func Enter(ctx context.Context, own Mode, runDir, kubeletDir string) (leave func(), err error) {
	if err := PrepareRunDir(runDir); err != nil {
		return nil, err
	}
	leave, err = enterMode(own, runDir, RunDirs(kubeletDir)...)
	if err != nil || own == DevicePlugin {
		return leave, err
	}
	for _, dir := range append([]string{runDir}, RunDirs(kubeletDir)...) {
		if err := checkMode(ctx, own, dir); err != nil {
			leave()
			return nil, err
		}
	}
	return leave, nil
}

// checkMode returns an error if a server in a run directory is in another mode.
func checkMode(ctx context.Context, own Mode, runDir string) error {
	if !Answers(runDir) {
		return nil
	}
	answer, err := Status(ctx, runDir)
	if err != nil || modeOf(answer.GetMode()) == own {
		return nil // a process that does not answer takes no part in a coordination
	}
	return &ModeError{Mode: modeOf(answer.GetMode()), Seen: "they answer at " + SocketPath(runDir)}
}

// modeOf returns the mode of a server; a server without a mode is a device plugin.
func modeOf(reported string) Mode {
	if reported == "" {
		return DevicePlugin
	}
	return Mode(reported)
}
