// SPDX-License-Identifier: Apache-2.0

package container_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tandem-k8s/tandem/plugins/container"
)

// Whatever backends and grants return has words in CDI.
func TestCDI(t *testing.T) {
	var edits container.Edits
	for _, e := range []container.Edits{
		{
			Env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2", "EMPTY": ""},
			Nodes: []container.Node{
				{Path: "/dev/nvidia0", Host: "/driver/dev/nvidia0"}, {Path: "/dev/nvidia0", Host: "/other"},
			},
			Mounts: []container.Mount{{Path: "/run/gpu", Host: "/dev/null"}, {Path: "/run/gpu", Host: "/again"}},
			Named:  container.Named{Devices: []string{"nvidia.com/gpu=0", "nvidia.com/gpu=1"}, Field: true},
		},
		{
			Env:    map[string]string{"PCIDEVICE_A": "x"},
			Mounts: []container.Mount{{Path: "/run/pairs.json", Host: "/pairs.json", ReadOnly: true}},
			Named:  container.Named{Devices: []string{"nvidia.com/gpu=1", "nvidia.com/gpu=2"}},
		},
	} {
		edits.Add(e)
	}
	if diff := cmp.Diff(specs.ContainerEdits{
		Env: []string{"EMPTY=", "NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2", "PCIDEVICE_A=x"},
		DeviceNodes: []*specs.DeviceNode{
			{Path: "/dev/nvidia0", HostPath: "/driver/dev/nvidia0", Permissions: "rw"},
		},
		Mounts: []*specs.Mount{
			{ContainerPath: "/run/gpu", HostPath: "/dev/null", Options: []string{"rbind", "rprivate", "rw"}},
			{ContainerPath: "/run/pairs.json", HostPath: "/pairs.json", Options: []string{"rbind", "rprivate", "ro"}},
		},
	}, edits.CDI()); diff != "" {
		t.Error(diff)
	}
	named := []string{"nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=2"}
	if diff := cmp.Diff(named, edits.Named.Devices); diff != "" {
		t.Error(diff)
	}
}

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
