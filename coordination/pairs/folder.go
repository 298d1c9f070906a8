package pairs

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// unclaimed is how long a pairs file stays that the kubelet's checkpoint does not have: it may be of a
// container that is being admitted.
const unclaimed = 10 * time.Minute

// Folder is that of the pairs files of a node. All that is in it is written here, but for the files of
// containers that were given VFs while no coordinator answered.
type Folder struct {
	path string
	log  *slog.Logger
	mu   sync.Mutex // one write after the other
}

// NewFolder is the folder at a path. It need not be there.
func NewFolder(path string, log *slog.Logger) *Folder { return &Folder{path: path, log: log} }

// Complete writes what a container has into its pairs files; they all get everything, since the kubelet
// mounts but one of them. The VFs are named as they are handed over. What the container has is asked for when
// it is this write's turn, so that the last one has everything. False means that a file is not written, which
// is logged.
func (f *Folder) Complete(files []string, vfs []VF, tree *topology.Tree, all func() []Device) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	complete := true
	content := Compose(tree, all(), vfs)
	for _, file := range files {
		if err := content.Write(file); err != nil {
			f.log.Error("a container's pairs file is incomplete", "error", err)
			complete = false
		}
	}
	return complete
}

// Tidy makes the pairs files those of the containers that there are. A boot takes the files, not the
// containers: the kubelet starts them with the answers it keeps. The files of containers that are gone are
// removed. The containers are those that the kubelet's checkpoint has, where it could be read.
func (f *Folder) Tidy(
	tree *topology.Tree, containers []kubelet.Granted, devices func(kubelet.Devices) []Device,
) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := map[string]bool{}
	for _, container := range containers {
		for _, file := range container.Mounts {
			if filepath.Dir(file) == f.path {
				kept[file] = true
				f.restore(file, tree, container, devices(container.Devices))
			}
		}
	}
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return // there is none
	}
	for _, entry := range entries {
		file := filepath.Join(f.path, entry.Name())
		info, err := entry.Info()
		if err == nil && !kept[file] && time.Since(info.ModTime()) > unclaimed {
			_ = os.Remove(file)
		}
	}
}

// restore writes a container's pairs file where it is missing, or lacks GPUs that the container has. Where a
// container runtime has made a folder of a missing file, the folder goes.
func (f *Folder) restore(file string, tree *topology.Tree, container kubelet.Granted, all []Device) {
	before, err := Read(file)
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
		_ = os.Remove(file) // fails where it is not empty, and so is not what we mean
	}
	if err := Compose(tree, all, vfs).Write(file); err != nil {
		f.log.Error("a container's pairs file is missing", "container", container.Container, "error", err)
		return
	}
	f.log.Info("restore pairs", "container", container.Container, "file", file)
}
