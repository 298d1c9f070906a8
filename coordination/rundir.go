// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// RunDir is the default run directory. It is below the kubelet's device plugin directory, which the pod of
// every device plugin mounts under any deployment: no other directory is certainly common to both pods.
// When the kubelet starts it deletes the sockets in that directory, but not subdirectories and their content
// (CleanupPluginDirectory in pkg/kubelet/cm/devicemanager/manager.go).
func RunDir(kubeletDir string) string { return filepath.Join(kubeletDir, "device-plugins", "tandem") }

// manifestsRunDir is the run directory in Tandem's own manifests.
const manifestsRunDir = "/run/tandem"

// RunDirs returns the possible run directories of a node's plugins, the default first.
func RunDirs(kubeletDir string) []string { return []string{RunDir(kubeletDir), manifestsRunDir} }

// FindRunDir returns the run directory of the running plugins: a directory with a server, or with a socket
// without access for this process; otherwise an existing directory; otherwise the first of RunDirs.
func FindRunDir(kubeletDir string) string {
	places := RunDirs(kubeletDir)
	for _, right := range []func(string) bool{Answers, isDir} {
		for _, dir := range places {
			if right(dir) {
				return dir
			}
		}
	}
	return places[0]
}

// Answers reports whether a plugin serves in a run directory, or may serve if this process has no permission
// to check.
func Answers(runDir string) bool {
	conn, err := net.DialTimeout("unix", SocketPath(runDir), time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil || errors.Is(err, fs.ErrPermission)
}

func isDir(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// socketName is the name of the socket in the run directory.
const socketName = "coordination.sock"

// lockName is the name of the lock in the run directory.
const lockName = "lock"

// maxSocketPath is the maximum length of a socket path: sun_path in unix(7) has 108 bytes, including the
// final zero.
const maxSocketPath = 107

// SocketPath returns the coordination socket of a run directory.
func SocketPath(runDir string) string { return filepath.Join(runDir, socketName) }

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
		return fmt.Errorf("bind %s: the path exists and is not a socket; remove the file", name)
	}
	return nil
}

// makeRunDir creates the run directory if necessary, and makes sure that only this user owns and can enter
// the directory.
func makeRunDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return unusable(dir, err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return unusable(dir, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("use run folder %s: the path has to be a folder owned by user %d, not a symbolic link; "+
			"remove it or choose another --run-dir", dir, os.Geteuid())
	}
	if info.Mode().Perm() == 0o700 {
		return nil
	}
	if err := checkOwn(dir); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return unusable(dir, err)
	}
	return nil
}

// checkOwn returns an error if a folder has files of others, whom a change of its mode would lock out: the
// folder is not empty, and without the lock that each run folder gets first.
func checkOwn(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return unusable(dir, err)
	}
	lock, err := os.Lstat(filepath.Join(dir, lockName))
	if len(entries) > 0 && (err != nil || !lock.Mode().IsRegular()) {
		return fmt.Errorf("use run folder %s: it has files of others; choose a folder of Tandem's own as --run-dir",
			dir)
	}
	return nil
}

// unusable returns the error for an unusable run directory, with advice.
func unusable(dir string, err error) error {
	return fmt.Errorf("use run folder %s: %w; it has to be writable and have space: make it so or choose "+
		"another --run-dir", dir, err)
}

// PrepareRunDir creates the run directory if necessary, and checks that the lock and the socket can be
// created.
func PrepareRunDir(dir string) error {
	if err := makeRunDir(dir); err != nil {
		return err
	}
	release, err := tryLock(dir)
	if errors.Is(err, errLocked) {
		return nil // another process serves
	}
	if err != nil {
		return unusable(dir, err)
	}
	defer release()
	return CheckSocketPlace(SocketPath(dir))
}

// Timing of the election, which determines how soon the other plugin takes over from a dead server: a plugin
// tries to take the lock every electionStep for electionBurst after the connection broke, and always every
// electionPause.
const (
	electionStep  = 10 * time.Millisecond
	electionBurst = time.Second
	electionPause = 5 * time.Second
)

// errLocked means that another process serves.
var errLocked = errors.New("lock is held")

// tryLock takes <run-dir>/lock without waiting. The kernel releases the lock at any end of the process. The
// file remains: after a removal two processes could lock two files of the same name.
func tryLock(runDir string) (release func(), err error) {
	name := filepath.Join(runDir, lockName)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = system.Flock(file, syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return func() { file.Close() }, nil
	}
	file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("lock %s: %w", name, err)
}
