// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
)

// access reaches files, folders and sockets, and notes those without permission. A closed file is neither
// missing nor damaged: its only finding is [noRight].
type access struct{ closed []string }

// denied reports whether an error is a lack of permission, and notes the closed path.
func (a *access) denied(path string, err error) bool {
	if !errors.Is(err, fs.ErrPermission) {
		return false
	}
	for isClosed(path) { // then a folder above is closed
		path = filepath.Dir(path)
	}
	if !slices.Contains(a.closed, path) {
		a.closed = append(a.closed, path)
	}
	return true
}

func isClosed(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrPermission)
}

// unreached says why nobody answers on a socket; "" for an answer, and for a closed socket.
func (a *access) unreached(socket string) string {
	if err := dial(socket); err != nil && !a.denied(socket, err) {
		return fmt.Sprintf("%s: %v", socket, err)
	}
	return ""
}

// dialTimeout limits a connection, which the kernel accepts however busy the process is.
const dialTimeout = time.Second

// dial returns why a socket cannot be reached, nil if a process listens.
func dial(socket string) error {
	conn, err := net.DialTimeout("unix", socket, dialTimeout)
	if err != nil {
		return errors.Unwrap(err)
	}
	return conn.Close()
}

// noRight finds the closed files and folders.
func noRight(closed []string) []Finding {
	slices.Sort(closed)
	return finding.OfSome(closed, Finding{
		ID: "no-right", Severity: Unknown,
		Summary: fmt.Sprintf("User %d is not permitted to read %s.",
			os.Geteuid(), document.Count(len(closed), "file or folder")),
		Why: "The report lacks this data.",
		Fix: []string{
			"run tandem doctor as root: sudo tandem doctor", "in a debug container: kubectl debug --profile=sysadmin",
		},
	})
}
