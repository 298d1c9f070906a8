// SPDX-License-Identifier: Apache-2.0

// Package pairs writes the file that lists the GPU of each VF of a container.
package pairs

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// File is the content of /run/tandem/pairs.json in a container: its GPUs with their VFs, in the order in
// which the container lists both. New keys may be added; existing keys keep their meaning.
type File struct {
	Version int    `json:"version"` // 1
	Pairs   []Pair `json:"pairs"`
}

const version = 1

// Document is a pairs file as written. Names of RDMA devices and netdevs can change with a boot.
type Document struct {
	File
	Boot string `json:"boot,omitempty"` // of the names; the kernel's boot_id, missing in files of earlier versions
}

// Mount is the path of the file in a container.
const Mount = "/run/tandem/pairs.json"

// Pair is a VF with its GPU. If the numbers of GPUs and VFs differ, some devices occur in several pairs.
type Pair struct {
	GPU      *GPU              `json:"gpu"` // null in a container without GPUs
	VF       VF                `json:"vf"`
	Distance string            `json:"distance,omitempty"` // PIX to SYS, UNK
	Bridges  int               `json:"bridges,omitempty"`  // number of bridges between GPU and VF
	Switch   *topology.Address `json:"switch,omitempty"`   // the lowest bridge above both
}

// GPU is a GPU of a container.
type GPU struct {
	ID       string           `json:"id"` // the kubelet's device ID: a UUID, an address, or the name of a partition
	Address  topology.Address `json:"address"`
	Resource string           `json:"resource"`
}

// VF is a VF of a container.
type VF struct {
	ID       string           `json:"id"`
	Address  topology.Address `json:"address"`
	Resource string           `json:"resource"`
	RDMA     string           `json:"rdma,omitempty"`   // "mlx5_5"
	Netdev   string           `json:"netdev,omitempty"` // name on the node; CNI plugins rename the netdev
}

// New returns the pairs file of a container without known GPUs.
func New(vfs []VF) File {
	f := File{Version: version, Pairs: []Pair{}}
	for _, vf := range vfs {
		f.Pairs = append(f.Pairs, Pair{VF: vf})
	}
	return f
}

// Read reads a pairs file.
func Read(name string) (File, error) {
	d, err := read(name)
	return d.File, err
}

func read(name string) (d Document, err error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return Document{}, fmt.Errorf("read pairs: %w", err)
	}
	d, err = system.Decode[Document](content, system.Layout{Version: version, Keys: []string{"pairs"}})
	if err != nil {
		return Document{}, fmt.Errorf("parse pairs in %s: %w", name, err)
	}
	return d, nil
}

// readOf reads a pairs file of a disk's boot. A file of another boot is an error, one that does not tell is
// not.
func readOf(disk system.Disk, name string) (File, error) {
	boot, err := disk.BootID()
	if err != nil {
		return File{}, err
	}
	d, err := read(name)
	if err == nil && d.Boot != "" && d.Boot != boot {
		return File{}, fmt.Errorf("read pairs: %s is of another boot", name)
	}
	return d.File, err
}

// Write writes a pairs file and creates its directory, unless the file has the content already. A running
// container keeps the file with which it started.
func (p File) Write(disk system.Disk, name string) error {
	boot, err := disk.BootID()
	var content []byte
	if err == nil {
		content, err = json.MarshalIndent(Document{p, boot}, "", "  ")
	}
	if err == nil {
		err = disk.Update(name, append(content, '\n'), 0o444, 0o700)
	}
	if err != nil {
		return fmt.Errorf("write pairs: %w", err)
	}
	return nil
}

// Served is a GPU of the node with the best VF of a container.
type Served struct {
	GPU topology.Address
	VF  string // device ID
}

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
				f.changeFile(func() { f.restoreFile(file, tree, container, all) })
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
			f.changeFile(func() { _ = f.disk.Remove(file) })
		}
	}
	f.lacking = lacking
}

// changeFile changes a single file, so that no answer to a container waits for the files of all others.
func (f *Folder) changeFile(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// restoreFile writes a container's pairs file if it is missing, of another boot, or lacks GPUs of the
// container. If a container runtime has created a directory in place of a missing file, restoreFile removes
// the directory. A file of a newer version stays.
func (f *Folder) restoreFile(file string, tree *topology.Tree, container kubelet.Granted, all []Device) {
	before, err := readOf(f.disk, file)
	if errors.Is(err, system.ErrNewer) {
		return
	}
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
			vfs = append(vfs, d.namedVF(tree))
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

// Device is a device with its resource.
type Device struct {
	device.Device
	Resource string
	Kind     device.Kind
}

// Compose returns the pairs file of a container with these GPUs and VFs, each named once. VF names come from
// the RDMA plugin.
func Compose(tree *topology.Tree, all []Device, vfs []VF) File {
	byID := map[string]Device{}
	var gpus, functions []device.Device
	for _, d := range all {
		if d.Kind == device.VF {
			functions = append(functions, d.Device)
		} else {
			gpus = append(gpus, d.Device)
		}
		byID[d.ID] = d
	}
	vf := func(id string) VF {
		if i := slices.IndexFunc(vfs, func(v VF) bool { return v.ID == id }); i >= 0 {
			return vfs[i]
		}
		return VF{ID: id, Address: byID[id].Address, Resource: byID[id].Resource}
	}
	file := New(nil)
	has := placement.Devices{GPUs: device.All(gpus).Held, VFs: device.All(functions).Held}
	pairs := placement.PairsOf(tree, has)
	if len(pairs) == 0 { // no GPU
		for _, d := range functions {
			file.Pairs = append(file.Pairs, Pair{VF: vf(d.ID)})
		}
		return file
	}
	for _, p := range pairs {
		file.Pairs = append(file.Pairs, Pair{
			GPU:      &GPU{ID: p.GPU.ID, Address: p.GPU.Address, Resource: byID[p.GPU.ID].Resource},
			VF:       vf(p.VF.ID),
			Distance: p.Distance.Level.String(),
			Bridges:  p.Distance.Bridges,
			Switch:   commonBridge(tree, p.GPU.Address, p.VF.Address),
		})
	}
	return file
}

// commonBridge returns the lowest bridge that two functions share, excluding bridges of their own cards; nil
// if there is none.
func commonBridge(tree *topology.Tree, a, b topology.Address) *topology.Address {
	above, below := tree.SharedBridges(a), tree.SharedBridges(b)
	var common *topology.Address
	for i := range min(len(above), len(below)) {
		if above[i] != below[i] {
			break
		}
		common = &above[i]
	}
	return common
}

// namedVF returns the tree's names of a VF; a sub-function is not in the tree, and the names of its function
// are not those of the sub-function.
func (d Device) namedVF(tree *topology.Tree) VF {
	vf := VF{ID: d.ID, Address: d.Address, Resource: d.Resource}
	function, ok := tree.Device(d.Address)
	if !ok || topology.UnitOfID(d.ID).Name != d.Address.String() {
		return vf
	}
	if len(function.RDMA) > 0 {
		vf.RDMA = function.RDMA[0]
	}
	if len(function.Netdevs) > 0 {
		vf.Netdev = function.Netdevs[0]
	}
	return vf
}
