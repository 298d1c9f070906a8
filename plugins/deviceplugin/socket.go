// SPDX-License-Identifier: Apache-2.0

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

// maxSocketPath is the maximum length of the path of a unix socket: sun_path in include/uapi/linux/un.h, less
// the final NUL.
const maxSocketPath = 107

// suffix is the pattern that newSocketName appends to a resource's name; suffixLength is its length.
const (
	suffix       = `-[A-Z2-7]{12}\.sock`
	suffixLength = len("-ABCDEFGHIJKL.sock")
)

// socketPrefix returns the common prefix of all sockets of a resource in a directory: "amd.com_gpu". If the
// path would be too long it is a truncated name and a hash: the kubelet accepts resource names that are
// longer than a socket name can be.
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

// newSocketName returns a name that no socket had before: from 1.37 on the kubelet never releases a name
// whose registration failed (pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go). The process ID is not
// sufficient: it is 1 in every container.
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

// listen opens a new socket in dir, accessible only to root. Closing the listener removes the socket.
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

// removeStale removes sockets of the same resource that earlier processes left. A socket with a listener
// belongs to another instance and stays.
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

// dead reports whether a socket has no listener.
func dead(path string) bool {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
