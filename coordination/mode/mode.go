// SPDX-License-Identifier: Apache-2.0

// Package mode keeps a node in one mode: either the device plugins or the DRA driver assign its devices.
//
// Every daemon holds a lock file of its mode in the run directory, shared with daemons of the same mode: the
// two device plugins, or two DRA drivers during an update. A daemon first takes its own lock and then checks
// the lock of the other mode. If two daemons start at the same time, at least one detects the conflict. The
// kernel releases the lock when the process ends.
//
// The package has the format of the DRA driver's file of prepared claims too, and reads the devices of claims
// for programs that need no other part of DRA: the device plugins of a node that has migrated back. It does
// not depend on Kubernetes' API.
package mode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Mode is the way in which a node's devices are assigned.
type Mode string

// Modes of a node.
const (
	DevicePlugin Mode = "device-plugin"
	DRA          Mode = "dra"
)

// Driver is the name of the DRA driver. The driver's directory is plugins/<Driver> in the kubelet's
// directory.
const Driver = "tandem.dev"

// Modes lists all modes.
var Modes = []Mode{DevicePlugin, DRA}

// HeldError means that a node is in another mode.
type HeldError struct {
	Mode Mode   // the mode of the node
	Seen string // the evidence, for people
}

// Error names the running daemons and the steps to change the mode.
func (e *HeldError) Error() string {
	running, remove := "the device plugins allocate this node's devices", "tandem-gpu and tandem-rdma"
	if e.Mode == DRA {
		running, remove = "the DRA driver allocates this node's devices", "tandem-dra"
	}
	return fmt.Sprintf("%s (%s), and a node has only one mode: first remove %s from this node "+
		"(running pods keep their devices; see docs/dra.md)", running, e.Seen, remove)
}

// Path returns the lock file of a mode in a run directory.
func Path(runDir string, m Mode) string { return filepath.Join(runDir, "mode-"+string(m)+".lock") }

// Enter puts this process into a mode until leave is called or the process ends. It returns a *HeldError if
// another process is in another mode, in this run directory or one of the node's other run directories.
func Enter(own Mode, runDir string, others ...string) (leave func(), err error) {
	name := Path(runDir, own)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("enter mode %s: %w", own, err)
	}
	// A process that checks the lock holds the lock exclusively for a moment, so Enter waits.
	if err := flock(file, syscall.LOCK_SH); err != nil {
		file.Close()
		return nil, fmt.Errorf("enter mode %s: lock %s: %w", own, name, err)
	}
	for _, dir := range append([]string{runDir}, others...) {
		for _, other := range Running(dir) {
			if other != own {
				file.Close()
				return nil, &HeldError{Mode: other, Seen: Path(dir, other) + " is held"}
			}
		}
	}
	return func() { file.Close() }, nil
}

// Running returns the modes of running processes according to a run directory; none if the directory is not
// readable.
func Running(runDir string) []Mode {
	return slices.DeleteFunc(slices.Clone(Modes), func(m Mode) bool { return !held(Path(runDir, m)) })
}

// held reports whether a daemon holds a lock. A check holds the lock exclusively for a moment, so checks take
// turns: otherwise a check takes another check for a daemon. The lock of the directory makes the turns,
// because the DRA driver has no right to write to a run directory in the kubelet's directory.
func held(name string) bool {
	if turn, err := os.Open(filepath.Dir(name)); err == nil {
		defer turn.Close() // after the file
		_ = flock(turn, syscall.LOCK_EX)
	}
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	return errors.Is(flock(file, syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

func flock(file *os.File, how int) error {
	for {
		if err := syscall.Flock(int(file.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
