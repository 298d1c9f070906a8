// SPDX-License-Identifier: Apache-2.0

// Package container describes the needs of a container that uses devices, in a form of Tandem's own. GPU
// backends and grants of VFs return [Edits]; package deviceplugin translates them into the kubelet's answer
// to Allocate, and [Edits.CDI] into edits of a CDI spec, which the DRA driver writes.
package container

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"
)

// Edits are the changes to a container that give it its devices.
type Edits struct {
	Env    map[string]string
	Nodes  []Node
	Mounts []Mount
	Named  Named
}

// Node is a device node, for reading and writing.
type Node struct {
	Path string // in the container
	Host string // on the host
}

// Mount is a file or folder of the host in the container.
type Mount struct {
	Path     string // in the container
	Host     string // on the host
	ReadOnly bool
}

// Named are CDI devices of other specs, which hold further edits. A device plugin passes their names on in an
// annotation, in a field of its own, or in both.
type Named struct {
	Devices    []string // qualified names, "nvidia.com/gpu=0"
	Annotation string   // key of the annotation; "" for none
	Field      bool
}

// Set sets an environment variable.
func (e *Edits) Set(name, value string) {
	if e.Env == nil {
		e.Env = map[string]string{}
	}
	e.Env[name] = value
}

// AddNodes adds device nodes. The first one of a path counts.
func (e *Edits) AddNodes(nodes ...Node) {
	for _, node := range nodes {
		if !slices.ContainsFunc(e.Nodes, func(n Node) bool { return n.Path == node.Path }) {
			e.Nodes = append(e.Nodes, node)
		}
	}
}

// AddMounts adds mounts. The first one of a path counts.
func (e *Edits) AddMounts(mounts ...Mount) {
	for _, mount := range mounts {
		if !slices.ContainsFunc(e.Mounts, func(m Mount) bool { return m.Path == mount.Path }) {
			e.Mounts = append(e.Mounts, mount)
		}
	}
}

// Add adds the edits for other devices of the same container. The last value of a variable counts. The ways
// in which a device plugin passes on the names of CDI devices stay.
func (e *Edits) Add(other Edits) {
	for name, value := range other.Env {
		e.Set(name, value)
	}
	e.AddNodes(other.Nodes...)
	e.AddMounts(other.Mounts...)
	for _, device := range other.Named.Devices {
		if !slices.Contains(e.Named.Devices, device) {
			e.Named.Devices = append(e.Named.Devices, device)
		}
	}
}

// CDI returns the edits as a CDI spec has them, without the devices of other specs.
func (e *Edits) CDI() (edits specs.ContainerEdits) {
	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		edits.Env = append(edits.Env, name+"="+e.Env[name])
	}
	for _, node := range e.Nodes {
		edits.DeviceNodes = append(edits.DeviceNodes, &specs.DeviceNode{
			Path: node.Path, HostPath: node.Host, Permissions: Permissions,
		})
	}
	for _, mount := range e.Mounts {
		access := "rw"
		if mount.ReadOnly {
			access = "ro"
		}
		edits.Mounts = append(edits.Mounts, &specs.Mount{
			HostPath: mount.Host, ContainerPath: mount.Path, Options: []string{"rbind", "rprivate", access},
		})
	}
	return edits
}

// Permissions are those of every device node, as the device cgroup spells them.
const Permissions = "rw"

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
