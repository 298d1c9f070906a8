// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// HasNode reports whether a folder of device nodes has a node, with its path in a container, "/dev/kfd". A
// folder that does not answer is no evidence that the node is missing.
func HasNode(dev fs.FS, path string) bool {
	_, err := fs.Stat(dev, strings.TrimPrefix(path, "/dev/"))
	return !errors.Is(err, fs.ErrNotExist)
}

// HostNodes returns the host's folder of device nodes, for a container that has it at another path than /dev;
// nil for /dev, where a container may see only its own nodes, and for a folder without the nodes of a
// machine.
func HostNodes(dir string) fs.FS {
	dev := os.DirFS(dir)
	if _, err := fs.Stat(dev, "null"); err != nil || filepath.Clean(dir) == "/dev" {
		return nil
	}
	return dev
}

// LacksNode reports whether the host's folder of device nodes lacks a node; a nil folder lacks none.
func LacksNode(host fs.FS, path string) bool { return host != nil && !HasNode(host, path) }
