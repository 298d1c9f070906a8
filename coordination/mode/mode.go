// Package mode keeps a node in one mode: its devices are handed out by the device plugins or by the DRA
// driver, never by both.
//
// Every daemon holds a lock file of its mode in the run folder, shared with the others of the same mode: the
// two device plugins, or two DRA drivers while one replaces the other. It takes its own first and looks for
// the other mode's then, so that of two that start at once at least one sees the other. The kernel gives a
// lock back when its process ends, however it ends.
package mode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Mode is how a node's devices are handed out.
type Mode string

// The modes.
const (
	DevicePlugin Mode = "device-plugin"
	DRA          Mode = "dra"
)

// Driver is the name of the DRA driver; its folder below the kubelet's is plugins/<Driver>.
const Driver = "tandem.dev"

// Modes are all that there are.
var Modes = []Mode{DevicePlugin, DRA}

// HeldError says that a node is in another mode.
type HeldError struct {
	Mode Mode   // that the node is in
	Seen string // what tells so, for people
}

// Error says what runs on the node and how to change that.
func (e *HeldError) Error() string {
	running, remove := "the device plugins hand out this node's devices", "tandem-gpu and tandem-rdma"
	if e.Mode == DRA {
		running, remove = "the DRA driver hands out this node's devices", "tandem-dra"
	}
	return fmt.Sprintf("%s (%s) and a node is in one mode: take %s off this node first, "+
		"its running pods keep their devices; docs/dra.md has the order", running, e.Seen, remove)
}

// Path is the lock file of a mode in a run folder.
func Path(runDir string, m Mode) string { return filepath.Join(runDir, "mode-"+string(m)+".lock") }

// Enter puts this process into a mode until leave is called or the process ends. It fails with a *HeldError
// where somebody is in another mode, in this run folder or in one of the others that the node may have.
func Enter(own Mode, runDir string, others ...string) (leave func(), err error) {
	name := Path(runDir, own)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("enter mode %s: %w", own, err)
	}
	// Who looks holds it alone for an instant, hence it waits.
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

// Running are the modes that processes are in, as a run folder tells; none where it cannot be looked at.
func Running(runDir string) []Mode {
	return slices.DeleteFunc(slices.Clone(Modes), func(m Mode) bool { return !held(Path(runDir, m)) })
}

// held reports whether somebody holds a lock.
func held(name string) bool {
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
