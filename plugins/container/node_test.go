// SPDX-License-Identifier: Apache-2.0

package container_test

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/plugins/container"
)

// silent is a folder whose device nodes cannot be read.
type silent struct{}

func (silent) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
}

// TestHasNode: only a folder that says so lacks a node.
func TestHasNode(t *testing.T) {
	dev := fstest.MapFS{"dri/renderD128": {}}
	for _, c := range []struct {
		dev  fs.FS
		path string
		want bool
	}{
		{dev, "/dev/dri/renderD128", true}, {dev, "/dev/dri/renderD129", false}, {dev, "/dev/kfd", false},
		{silent{}, "/dev/kfd", true},
	} {
		if got := container.HasNode(c.dev, c.path); got != c.want {
			t.Errorf("%s in %v: %t", c.path, c.dev, got)
		}
	}
}
