// Package machine reads what the commands show of a machine, from this node or from a recording.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/topology"
)

// Node is what the commands know of a machine. It is read from sysfs, whoever made the GPUs; see AskVRAM for
// what is not.
type Node struct {
	Sys   fs.FS
	Tree  *topology.Tree
	GPUs  []*topology.Device // ascending by address
	NICs  []*topology.Device // network functions that are not VFs, ascending by address
	Parts map[topology.Address][]gpu.Device
	Links []topology.Link
	vram  map[topology.Address]uint64 // bytes; absent where nobody tells
	Notes []string                    // what could not be read and is not needed
}

// Read reads the machine. What cannot be read and is not needed is a note.
func Read(s *Source) (*Node, error) {
	sys, err := s.open()
	if err != nil {
		return nil, err
	}
	tree, err := topology.Read(sys)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.Name(), err)
	}
	if tree, err = Placed(tree, s.TopologyFile); err != nil {
		return nil, err
	}
	n := &Node{
		Sys: sys, Tree: tree, Parts: map[topology.Address][]gpu.Device{}, vram: map[topology.Address]uint64{},
	}
	for d := range tree.Devices() {
		switch {
		case gpu.Vendor(d) != "":
			n.GPUs = append(n.GPUs, d)
		case d.Class.IsNetwork() && !d.IsVF():
			n.NICs = append(n.NICs, d)
		}
	}
	n.readAMD()
	return n, nil
}

// readAMD reads the memory, the partitions and XGMI links of AMD GPUs. Where amdgpu is not loaded or the KFD
// topology is hidden the matrix is still right, so that errors are notes.
func (n *Node) readAMD() {
	if _, err := fs.Stat(n.Sys, "module/amdgpu"); errors.Is(err, fs.ErrNotExist) {
		return
	}
	for _, d := range n.GPUs {
		switch bytes, err := amd.ReadVRAM(n.Sys, d.Address); {
		case err != nil:
			n.Notes = append(n.Notes, err.Error())
		case bytes > 0:
			n.vram[d.Address] = bytes
		}
	}
	links, err := amd.ReadLinks(n.Sys)
	if err != nil {
		n.Notes = append(n.Notes, err.Error())
	}
	n.Links = links
	backend, err := amd.New(n.Sys, amd.Mixed)
	if err != nil {
		n.Notes = append(n.Notes, err.Error())
		return
	}
	inventory, err := backend.Discover()
	if err != nil {
		n.Notes = append(n.Notes, err.Error())
	}
	for _, devices := range inventory.Resources {
		for _, d := range devices {
			n.Parts[d.Card] = append(n.Parts[d.Card], d)
		}
	}
}

// AskVRAM has the running plugins tell what sysfs does not, the memory of NVIDIA's GPUs. Without plugins, or
// the right to ask them, it stays unknown.
func (n *Node) AskVRAM(ctx context.Context, runDir string) {
	if !slices.ContainsFunc(n.GPUs, func(d *topology.Device) bool { return n.vram[d.Address] == 0 }) {
		return
	}
	answer, err := coordinator.AskStatus(ctx, runDir)
	if err != nil {
		return
	}
	for _, r := range answer.GetResources() {
		for _, d := range r.GetDevices() {
			address, err := topology.ParseAddress(d.GetDevice().GetAddress())
			if bytes := d.GetDevice().GetVram(); err == nil && bytes > 0 {
				n.vram[address] = bytes
			}
		}
	}
}

// RDMANICs are the PFs that have an RDMA device.
func (n *Node) RDMANICs() []*topology.Device {
	return slices.DeleteFunc(slices.Clone(n.NICs), func(d *topology.Device) bool { return len(d.RDMA) == 0 })
}

// VRAM is the size of a GPU's memory in bytes for JSON: null where it is unknown.
func (n *Node) VRAM(gpu topology.Address) *uint64 {
	if bytes, known := n.vram[gpu]; known {
		return &bytes
	}
	return nil
}
