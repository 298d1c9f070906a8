// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tandem-k8s/tandem/coordination/fswatch"
)

// socketName is the name of the socket in the run directory.
const socketName = "coordination.sock"

// maxSocketPath is the maximum length of a socket path: sun_path in unix(7) has 108 bytes, including the
// final zero.
const maxSocketPath = 107

// SocketPath returns the coordination socket of a run directory.
func SocketPath(runDir string) string { return filepath.Join(runDir, socketName) }

// prepareRunDir creates the run directory if necessary, and checks that it belongs to this user and that no
// other user can enter it.
func prepareRunDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return unusable(dir, err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return unusable(dir, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("use run folder %s: it has to be a folder owned by user %d, not a link; "+
			"remove it or choose another --run-dir", dir, os.Geteuid())
	}
	if info.Mode().Perm() == 0o700 {
		return nil
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return unusable(dir, err)
	}
	return nil
}

func unusable(dir string, err error) error {
	return fmt.Errorf("use run folder %s: %w; it has to be writable and have space: make it so or choose "+
		"another --run-dir", dir, err)
}

// checkRunDir prepares the run directory and checks that the lock and the socket can be created in it.
func checkRunDir(dir string) error {
	if err := prepareRunDir(dir); err != nil {
		return err
	}
	release, err := tryLock(dir)
	if errors.Is(err, errLocked) {
		return nil // the other plugin serves there
	}
	if err != nil {
		return unusable(dir, err)
	}
	defer release()
	return CheckSocketPlace(SocketPath(dir))
}

// errReplaced means that the socket in the run directory is gone or belongs to another process.
var errReplaced = errors.New("the coordination socket was removed or replaced")

// awaitReplaced checks the socket until ctx is done, or until the socket is no longer the initial one, which
// is an error. It checks after each change of the file, which includes removal and replacement, and every
// electionPause, for changes of parent directories and for file systems without notification. It calls looked
// each time.
func awaitReplaced(ctx context.Context, runDir string, looked func()) error {
	path := SocketPath(runDir) // not the directory: every Allocate writes there
	ours, ok := fswatch.Identify(path)
	if !ok {
		return errReplaced
	}
	watch := fswatch.Watch{Paths: []string{path}, Interval: electionPause}
	return watch.Run(ctx, func() error {
		if now, _ := fswatch.Identify(path); now != ours {
			return errReplaced
		}
		looked()
		return nil
	})
}

// CheckSocketPlace checks that a socket can be bound to a path: the path is short enough and contains nothing
// but a socket.
func CheckSocketPlace(name string) error {
	if len(name) > maxSocketPath {
		return fmt.Errorf("bind %s: the path has %d bytes, a socket's may have %d; choose a shorter --run-dir",
			name, len(name), maxSocketPath)
	}
	switch info, err := os.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("bind %s: something else than a socket is there; remove it", name)
	}
	return nil
}

// listen binds the coordination socket. Only the holder of the lock may call it: an existing socket then
// belongs to an ended process. The caller removes the socket, because it knows whether another process has
// replaced it.
func listen(runDir string) (*net.UnixListener, error) {
	name := SocketPath(runDir)
	if err := CheckSocketPlace(name); err != nil {
		return nil, err
	}
	if err := removeSocket(runDir); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("bind coordination socket: %w", err)
	}
	listener.SetUnlinkOnClose(false)
	if err := os.Chmod(name, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("close socket to others: %w", err)
	}
	return listener, nil
}

func removeSocket(runDir string) error {
	if err := os.Remove(SocketPath(runDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove coordination socket: %w", err)
	}
	return nil
}
