package coordination

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// socketName is the socket below the run folder. It does not live below the kubelet's folders: the kubelet deletes
// every socket in device-plugins when it starts.
const socketName = "coordination.sock"

// maxSocketPath is the longest path a socket can be bound to: sun_path in unix(7) holds 108 bytes, the last one zero.
const maxSocketPath = 107

// SocketPath returns where the coordination socket is for a run folder (/run/tandem).
func SocketPath(runDir string) string { return filepath.Join(runDir, socketName) }

// prepareRunDir makes the run folder if need be, and makes sure that it is a folder of ours that nobody else can enter.
func prepareRunDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make run folder %s: %w", dir, err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at run folder %s: %w", dir, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("use run folder %s: it has to be a folder owned by user %d, not a link; remove it or choose another --run-dir", dir, os.Geteuid())
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("close run folder to others: %w", err)
	}
	return nil
}

// listen binds the coordination socket. Only the holder of the lock may call it: a socket that is there is a dead one's.
func listen(runDir string) (net.Listener, error) {
	name := SocketPath(runDir)
	if len(name) > maxSocketPath {
		return nil, fmt.Errorf("bind %s: the path has %d bytes, a socket's may have %d; choose a shorter --run-dir", name, len(name), maxSocketPath)
	}
	switch info, err := os.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("look at socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("bind %s: something else than a socket is there; remove it", name)
	default:
		if err := os.Remove(name); err != nil {
			return nil, fmt.Errorf("remove stale socket: %w", err)
		}
	}
	listener, err := net.Listen("unix", name)
	if err != nil {
		return nil, fmt.Errorf("bind coordination socket: %w", err)
	}
	if err := os.Chmod(name, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("close socket to others: %w", err)
	}
	return listener, nil
}
