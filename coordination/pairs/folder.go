// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
)

// Folder is the directory of a node's pairs files. The Folder writes all files, except files of containers
// that got VFs while no coordinator answered.
type Folder struct {
	disk system.Disk
	path string
	log  *slog.Logger
	mu   sync.Mutex // serializes writes

	tidying sync.Mutex
	lacking map[string]kubelet.Identity // files of no container, with the checkpoint that first lacked each
}

// NewFolder returns the folder at a path. The directory need not exist.
func NewFolder(disk system.Disk, path string, log *slog.Logger) *Folder {
	return &Folder{disk: disk, path: path, log: log}
}

// Has reports whether a file belongs in the folder: no other file is written for a client.
func (f *Folder) Has(file string) bool { return filepath.Join(f.path, filepath.Base(file)) == file }

// Complete writes all devices of a container into its pairs files, with the VF names of the Allocate. All
// files of the container have the same content, because the kubelet mounts only one file. Complete reads the
// container's devices under the lock, so that the last write contains all devices. Complete logs errors and
// returns false if a file is not written.
func (f *Folder) Complete(files []string, vfs []VF, tree *topology.Tree, all func() []Device) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	complete := true
	content := Compose(tree, all(), vfs)
	for _, file := range files {
		if err := content.Write(f.disk, file); err != nil {
			f.log.Error("a container's pairs file is incomplete", "error", err)
			complete = false
		}
	}
	return complete
}

// Tidy restores the pairs files of containers in the kubelet's checkpoint and removes the files of former
// containers. A boot removes the files, or makes their names invalid, but the kubelet restarts the containers
// with its stored answers. A container in admission is not in the checkpoint yet: its files are open as far
// as known, and a file is only removed if a later checkpoint lacks the file too.
func (f *Folder) Tidy(
	tree *topology.Tree, containers []kubelet.Granted, recorded kubelet.Identity, open []string,
	devices func(kubelet.Devices) []Device,
) {
	f.tidying.Lock()
	defer f.tidying.Unlock()
	kept := map[string]bool{}
	for _, file := range open {
		kept[file] = true
	}
	for _, container := range containers {
		for _, file := range container.Mounts {
			if f.Has(file) {
				kept[file] = true
				all := devices(container.Devices)
				f.write(func() { f.restore(file, tree, container, all) })
			}
		}
	}
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return // the directory does not exist
	}
	lacking := map[string]kubelet.Identity{}
	for _, entry := range entries {
		file := filepath.Join(f.path, entry.Name())
		switch first, lacked := f.lacking[file]; {
		case kept[file]:
		case !lacked:
			lacking[file] = recorded
		case first == recorded:
			lacking[file] = first
		default:
			f.write(func() { _ = f.disk.Remove(file) })
		}
	}
	f.lacking = lacking
}

// write changes a single file, so that no answer to a container waits for the files of all others.
func (f *Folder) write(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// restore writes a container's pairs file if it is missing, of another boot, or lacks GPUs of the container.
// If a container runtime has created a directory in place of a missing file, restore removes the directory.
func (f *Folder) restore(file string, tree *topology.Tree, container kubelet.Granted, all []Device) {
	before, err := readOf(f.disk, file)
	hasGPU := slices.ContainsFunc(all, func(d Device) bool { return d.Kind == device.GPU })
	hasVF := slices.ContainsFunc(all, func(d Device) bool { return d.Kind == device.VF })
	complete := err == nil &&
		!(hasGPU && slices.ContainsFunc(before.Pairs, func(p Pair) bool { return p.GPU == nil }))
	if complete || !hasVF {
		return
	}
	var vfs []VF
	for _, p := range before.Pairs {
		vfs = append(vfs, p.VF)
	}
	for _, d := range all {
		if d.Kind == device.VF && err != nil {
			vfs = append(vfs, d.named(tree))
		}
	}
	if info, err := os.Lstat(file); err == nil && info.IsDir() {
		_ = f.disk.Remove(file) // fails unless it is an empty directory
	}
	if err := Compose(tree, all, vfs).Write(f.disk, file); err != nil {
		f.log.Error("a container's pairs file is missing", "container", container.Container, "error", err)
		return
	}
	f.log.Info("restored pairs file", "container", container.Container, "file", file)
}
