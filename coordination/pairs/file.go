// Package pairs is the file in which a container finds which of its VFs serves which GPU.
package pairs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tandem-k8s/tandem/coordination/file"
	"github.com/tandem-k8s/tandem/topology"
)

// File is what a container finds in /run/tandem/pairs.json: its GPUs with the VFs that serve them, in the
// order in which both are listed to it. Keys are added to it, never changed.
type File struct {
	Version int    `json:"version"` // 1
	Pairs   []Pair `json:"pairs"`
}

const version = 1

// Pair is a VF with a GPU that it serves. Where there are more of one than of the other, some are named
// several times.
type Pair struct {
	GPU      *GPU              `json:"gpu"` // null in a container without GPUs
	VF       VF                `json:"vf"`
	Distance string            `json:"distance,omitempty"` // PIX to SYS, UNK
	Bridges  int               `json:"bridges,omitempty"`  // between the two
	Switch   *topology.Address `json:"switch,omitempty"`   // the lowest bridge above both
}

// GPU is a GPU of a container.
type GPU struct {
	ID       string           `json:"id"` // the kubelet's device ID: a UUID, an address, the name of a partition
	Address  topology.Address `json:"address"`
	Resource string           `json:"resource"`
}

// VF is a VF of a container.
type VF struct {
	ID       string           `json:"id"`
	Address  topology.Address `json:"address"`
	Resource string           `json:"resource"`
	RDMA     string           `json:"rdma,omitempty"`   // "mlx5_5"
	Netdev   string           `json:"netdev,omitempty"` // as the node called it; CNI plugins rename it
}

// New makes the pairs file of a container of which no GPU is known.
func New(vfs []VF) File {
	f := File{Version: version, Pairs: []Pair{}}
	for _, vf := range vfs {
		f.Pairs = append(f.Pairs, Pair{VF: vf})
	}
	return f
}

// Read reads a pairs file.
func Read(name string) (File, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return File{}, fmt.Errorf("read pairs: %w", err)
	}
	var p File
	if err := json.Unmarshal(content, &p); err != nil {
		return File{}, fmt.Errorf("parse pairs in %s: %w", name, err)
	}
	return p, nil
}

// Write puts a pairs file in place, and makes its folder. A container that runs keeps the file that it was
// started with; one that starts gets this one.
func (p File) Write(name string) error {
	content, err := json.MarshalIndent(p, "", "  ")
	err = errors.Join(err, os.MkdirAll(filepath.Dir(name), 0o700))
	if err == nil {
		err = file.Replace(name, append(content, '\n'), 0o444)
	}
	if err != nil {
		return fmt.Errorf("write pairs: %w", err)
	}
	return nil
}

// Served is a GPU of the node with the VF of a container that serves it best.
type Served struct {
	GPU topology.Address
	VF  string // device ID
}
