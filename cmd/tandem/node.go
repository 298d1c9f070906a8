package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/topology"
)

// node is what the commands know of a machine. It is read from sysfs, whoever made the GPUs; see askVRAM for what is not.
type node struct {
	sys   fs.FS
	tree  *topology.Tree
	gpus  []*topology.Device // ascending by address
	nics  []*topology.Device // network functions that are not VFs, ascending by address
	parts map[topology.Address][]gpu.Device
	links []topology.Link
	vram  map[topology.Address]uint64 // bytes; absent where nobody tells
	notes []string                    // what could not be read and is not needed
}

func readNode(s *source) (*node, error) {
	sys, err := s.open()
	if err != nil {
		return nil, err
	}
	tree, err := topology.Read(sys)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.name(), err)
	}
	if tree, err = placed(tree, s.topologyFile); err != nil {
		return nil, err
	}
	n := &node{sys: sys, tree: tree, parts: map[topology.Address][]gpu.Device{}, vram: map[topology.Address]uint64{}}
	for d := range tree.Devices() {
		switch {
		case isGPU(d):
			n.gpus = append(n.gpus, d)
		case d.Class.IsNetwork() && !d.IsVF():
			n.nics = append(n.nics, d)
		}
	}
	n.readAMD()
	return n, nil
}

// isGPU leaves out the display controllers of board management controllers.
func isGPU(d *topology.Device) bool {
	return d.Class.IsGPU() && (d.Vendor == amdVendor || d.Vendor == nvidiaVendor)
}

// readAMD reads the memory, the partitions and XGMI links of AMD GPUs. Where amdgpu is not loaded or the KFD topology is hidden the
// matrix is still right, so that errors are notes.
func (n *node) readAMD() {
	if _, err := fs.Stat(n.sys, "module/amdgpu"); errors.Is(err, fs.ErrNotExist) {
		return
	}
	for _, d := range n.gpus {
		switch bytes, err := amd.ReadVRAM(n.sys, d.Address); {
		case err != nil:
			n.notes = append(n.notes, err.Error())
		case bytes > 0:
			n.vram[d.Address] = bytes
		}
	}
	links, err := amd.ReadLinks(n.sys)
	if err != nil {
		n.notes = append(n.notes, err.Error())
	}
	n.links = links
	backend, err := amd.New(n.sys, amd.Mixed)
	if err != nil {
		n.notes = append(n.notes, err.Error())
		return
	}
	inventory, err := backend.Discover()
	if err != nil {
		n.notes = append(n.notes, err.Error())
	}
	for _, devices := range inventory.Resources {
		for _, d := range devices {
			n.parts[d.Card] = append(n.parts[d.Card], d)
		}
	}
}

// askVRAM has the running plugins tell what sysfs does not, the memory of NVIDIA's GPUs. Without plugins, or the right to ask them,
// it stays unknown.
func (n *node) askVRAM(ctx context.Context, runDir string) {
	if !slices.ContainsFunc(n.gpus, func(d *topology.Device) bool { return n.vram[d.Address] == 0 }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	answer, err := coordination.Status(ctx, runDir)
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

// rdmaNICs are the PFs that have an RDMA device.
func (n *node) rdmaNICs() []*topology.Device {
	return slices.DeleteFunc(slices.Clone(n.nics), func(d *topology.Device) bool { return len(d.RDMA) == 0 })
}

// memory is the size of a GPU's memory in bytes for JSON: null where it is unknown.
func (n *node) memory(gpu topology.Address) *uint64 {
	if bytes, known := n.vram[gpu]; known {
		return &bytes
	}
	return nil
}

// number is a NUMA node for JSON: null where it is unknown.
func number(n topology.NUMANode) *int {
	if value, known := n.Number(); known {
		return &value
	}
	return nil
}
