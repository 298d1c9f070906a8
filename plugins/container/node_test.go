// SPDX-License-Identifier: Apache-2.0

package container_test

import (
	"io/fs"
	"os"
	"path/filepath"
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

// TestHostNodes: a node is missing only from a folder with the nodes of a machine, other than /dev.
func TestHostNodes(t *testing.T) {
	empty, host := t.TempDir(), t.TempDir()
	for _, name := range []string{"null", "kfd"} {
		if err := os.WriteFile(filepath.Join(host, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		dir, path string
		want      bool
	}{
		{host, "/dev/kfd", false}, {host, "/dev/dri/renderD128", true},
		{empty, "/dev/kfd", false}, {"/dev", "/dev/kfd of nobody", false}, {"/dev/", "/dev/kfd of nobody", false},
	} {
		if got := container.LacksNode(container.HostNodes(c.dir), c.path); got != c.want {
			t.Errorf("%s is missing in %s: %t", c.path, c.dir, got)
		}
	}
}
