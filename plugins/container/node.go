// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"io/fs"
	"strings"
)

// HasNode reports whether a folder of device nodes has a node, with its path in a container, "/dev/kfd". A
// folder that does not answer is no evidence that the node is missing.
func HasNode(dev fs.FS, path string) bool {
	_, err := fs.Stat(dev, strings.TrimPrefix(path, "/dev/"))
	return !errors.Is(err, fs.ErrNotExist)
}
