// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// denied reports whether an error says that a file, folder or socket may not be looked at, and notes which.
// What is closed is neither missing nor damaged: it has no finding but [examination.rights].
func (e *examination) denied(path string, err error) bool {
	if !errors.Is(err, fs.ErrPermission) {
		return false
	}
	for isClosed(path) { // then a folder above is what is closed
		path = filepath.Dir(path)
	}
	if !slices.Contains(e.closed, path) {
		e.closed = append(e.closed, path)
	}
	return true
}

func isClosed(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrPermission)
}

// rights tells what could not be looked at. It comes last: by then all has been tried.
func (e *examination) rights() {
	slices.Sort(e.closed)
	e.findIn(e.closed, Finding{
		ID: "no-right", Severity: Unknown,
		Summary: fmt.Sprintf("User %d has no right to look at %s.",
			os.Geteuid(), count(len(e.closed), "file or folder")),
		Why: "What they would tell is not in this report.",
		Fix: []string{
			"run tandem doctor as root: sudo tandem doctor", "in a debug container: kubectl debug --profile=sysadmin",
		},
	})
}
