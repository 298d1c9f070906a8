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
	"time"

	"github.com/fsnotify/fsnotify"
)

// socketName is the socket below the run folder.
const socketName = "coordination.sock"

// maxSocketPath is the longest path a socket can be bound to: sun_path in unix(7) holds 108 bytes, the last
// one zero.
const maxSocketPath = 107

// SocketPath returns where the coordination socket is for a run folder.
func SocketPath(runDir string) string { return filepath.Join(runDir, socketName) }

// prepareRunDir makes the run folder if need be, and makes sure that it is a folder of ours that nobody else
// can enter.
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

// checkRunDir prepares the run folder and makes sure that the lock and the socket can be made in it.
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

// errReplaced means that the socket in the run folder is gone or another's.
var errReplaced = errors.New("the coordination socket was removed or replaced")

// awaitReplaced looks at the socket until ctx is done, or it is not the one that was there first, which is an
// error: whenever the file changes, as it does when it is removed or another is put in its place, and every
// electionPause, which is for the folders above it and for where files cannot be watched. It calls looked
// each time.
func awaitReplaced(ctx context.Context, runDir string, looked func()) error {
	ours, err := os.Lstat(SocketPath(runDir))
	if err != nil {
		return errReplaced
	}
	var changed chan fsnotify.Event
	if watcher, err := fsnotify.NewWatcher(); err == nil {
		defer watcher.Close()
		if watcher.Add(SocketPath(runDir)) == nil { // not the folder: every Allocate writes there
			changed = watcher.Events
		}
	}
	tick := time.NewTicker(electionPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
		if now, err := os.Lstat(SocketPath(runDir)); err != nil || !os.SameFile(ours, now) {
			return errReplaced
		}
		looked()
	}
}

// CheckSocketPlace makes sure that a socket can be bound to a path: it is short enough and nothing but a
// socket is there.
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

// listen binds the coordination socket. Only the holder of the lock may call it: a socket that is there is a
// dead one's. To remove it is the caller's, who learns when another took its place.
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
