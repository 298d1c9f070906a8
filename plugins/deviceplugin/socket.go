package deviceplugin

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// maxSocketPath is the longest path of a unix socket: sun_path in include/uapi/linux/un.h, less the final
// NUL.
const maxSocketPath = 107

// suffix is what newSocketName adds to a resource's name, and suffixLength how long that is.
const (
	suffix       = `-[A-Z2-7]{12}\.sock`
	suffixLength = len("-ABCDEFGHIJKL.sock")
)

// socketPrefix is the part of a socket's name that all sockets of a resource in a folder share:
// "amd.com_gpu". Where a path would be too long it is the beginning of that, and a hash: the kubelet takes
// names of resources that are longer than a socket's may be.
func socketPrefix(dir, resource string) string {
	prefix := strings.ReplaceAll(resource, "/", "_")
	room := maxSocketPath - len(dir) - len("/") - suffixLength
	if len(prefix) <= room {
		return prefix
	}
	sum := sha256.Sum256([]byte(resource))
	hash := fmt.Sprintf("-%x", sum[:8])
	return prefix[:max(0, min(len(prefix), room-len(hash)))] + hash
}

// newSocketName makes a name that no socket had before: from 1.37 on the kubelet never lets go of a name
// under which a registration went wrong (pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go). The process
// number would not do: it is 1 in every container.
func newSocketName(dir, resource string) string {
	return socketPrefix(dir, resource) + "-" + rand.Text()[:12] + ".sock"
}

func checkSocketPath(path string) error {
	if len(path) > maxSocketPath {
		return fmt.Errorf("socket path %s has %d bytes and a socket may have %d: use a shorter --kubelet-dir",
			path, len(path), maxSocketPath)
	}
	return nil
}

// listen opens a new socket in dir, for root alone. Closing the listener removes the socket.
func listen(dir, resource string) (net.Listener, error) {
	path := filepath.Join(dir, newSocketName(dir, resource))
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open socket for %s: %w", resource, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect socket %s: %w", path, err), listener.Close())
	}
	return listener, nil
}

// removeStale removes the sockets that earlier processes left for the same resource. One that somebody still
// listens on is another instance's: it stays.
func removeStale(dir, resource string) (removed []string, err error) {
	ours := regexp.MustCompile("^" + regexp.QuoteMeta(socketPrefix(dir, resource)) + suffix + "$")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look for old sockets: %w", err)
	}
	for _, entry := range entries {
		if entry.Type() != fs.ModeSocket || !ours.MatchString(entry.Name()) {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		if !dead(path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, fmt.Errorf("remove old socket: %w", err)
		}
		removed = append(removed, entry.Name())
	}
	return removed, nil
}

// dead reports whether nobody listens on a socket any more.
func dead(path string) bool {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
