// SPDX-License-Identifier: Apache-2.0

// Package pairs writes the file that lists the GPU of each VF of a container.
package pairs

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
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
	if err := json.Unmarshal(content, &d); err != nil {
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
