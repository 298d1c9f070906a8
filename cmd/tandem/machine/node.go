// SPDX-License-Identifier: Apache-2.0

// Package machine reads a machine for the commands, from this node or from a recording, measures the
// distances of its GPUs and NICs, and shows them as a matrix and as a picture.
package machine

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/sysfs"
	"github.com/tandem-k8s/tandem/topology"
)

// Node is a machine as sysfs describes it, for GPUs of any vendor; AskVRAM adds data that sysfs lacks.
type Node struct {
	Sys   fs.FS
	Tree  *topology.Tree
	GPUs  []*topology.Device // ascending by address
	NICs  []*topology.Device // network functions other than VFs, ascending by address
	Parts map[topology.Address][]gpu.Device
	Links []topology.Link
	vram  map[topology.Address]uint64 // bytes; absent if unknown
	mixed map[string][]gpu.Device     // parts by resource
	Notes []string                    // optional parts that could not be read
	// Kubelet is the kubelet of a node that follows the documents, unless somebody has read another one.
	Kubelet model.Kubelet
	Stock   bool // the stock plugin offers the VFs: a pool has hints unless excludeTopology is true
}

// advised are the settings that the documents advise.
var advised = model.Kubelet{
	TopologyManagerPolicy: string(hints.Restricted), CPUManagerPolicy: "static", MemoryManagerPolicy: "None",
}

// mostCards is how many GPUs, and how many NICs, a machine may have: each is compared with each.
const mostCards = 1024

// Read reads the machine. An unreadable optional part becomes a note.
func Read(s *Source) (*Node, error) {
	sys, err := s.open()
	if err != nil {
		return nil, err
	}
	return ReadFS(sys, s)
}

// ReadFS reads the machine of a sysfs. The source only has the name and the topology file.
func ReadFS(sys fs.FS, s *Source) (*Node, error) {
	tree, err := topology.Read(sys)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.Name(), err)
	}
	if tree, err = Placed(tree, s.TopologyFile); err != nil {
		return nil, err
	}
	n := &Node{
		Sys: sys, Tree: tree, Parts: map[topology.Address][]gpu.Device{}, vram: map[topology.Address]uint64{},
		mixed: map[string][]gpu.Device{}, Kubelet: advised,
	}
	var managers []string
	for d := range tree.Devices() {
		switch {
		case gpu.Vendor(d) != "":
			n.GPUs = append(n.GPUs, d)
		case d.IsNIC() && !d.IsVF():
			n.NICs = append(n.NICs, d)
		case d.ManagesNVSwitches:
			managers = append(managers, d.Address.String())
		}
	}
	if len(n.GPUs) > mostCards || len(n.NICs) > mostCards {
		return nil, fmt.Errorf("read %s: it has %d GPUs and %d NICs, and %d of each are the most that are compared",
			s.Name(), len(n.GPUs), len(n.NICs), mostCards)
	}
	n.noteUnread()
	if len(managers) > 0 {
		const no = "left out, because they manage NVSwitches and are no NICs: "
		n.Notes = append(n.Notes, no+strings.Join(managers, ", "))
	}
	for _, reader := range sysfs.Readers {
		n.readGPUs(reader)
	}
	return n, nil
}

// noteUnread notes the GPUs whose near NIC is unknown.
func (n *Node) noteUnread() {
	var gpus []string
	for _, c := range n.Tree.Complexes() {
		if c.Unread {
			for _, gpu := range c.GPUs {
				gpus = append(gpus, gpu.String())
			}
		}
	}
	if len(gpus) > 0 {
		n.Notes = append(n.Notes, fmt.Sprintf("a NIC may be nearer than shown to GPU %s: Vital Product Data is "+
			"unread, which names the NIC of a DMA function; run or record as root", strings.Join(gpus, ", ")))
	}
}

// readGPUs reads the memory, the partitions and the links of a vendor's GPUs. Errors are notes, because the
// matrix is right without a driver too.
func (n *Node) readGPUs(r sysfs.Reader) {
	if !r.Loaded(n.Sys) {
		return
	}
	for _, d := range n.GPUs {
		switch bytes, err := r.VRAM(n.Sys, d.Address); {
		case err != nil:
			n.Notes = append(n.Notes, err.Error())
		case bytes > 0:
			n.vram[d.Address] = bytes
		}
	}
	links, err := r.Links(n.Sys)
	if err != nil {
		n.Notes = append(n.Notes, err.Error())
	}
	n.Links = append(n.Links, links...)
	inventory, err := r.Mixed(n.Sys)
	if err != nil {
		n.Notes = append(n.Notes, err.Error())
	}
	for name, devices := range inventory.Resources {
		n.mixed[name] = devices
		for _, d := range devices {
			n.Parts[d.Card] = append(n.Parts[d.Card], d)
		}
	}
}

// AskVRAM queries the running plugins for the memory of NVIDIA's GPUs, which sysfs lacks. Without plugins, or
// without permission, the memory stays unknown.
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

// RDMANICs returns the PFs with an RDMA device.
func (n *Node) RDMANICs() []*topology.Device {
	return slices.DeleteFunc(slices.Clone(n.NICs), func(d *topology.Device) bool { return len(d.RDMA) == 0 })
}

// VRAM returns the size of a GPU's memory in bytes for JSON: nil if unknown.
func (n *Node) VRAM(gpu topology.Address) *uint64 {
	if bytes, known := n.vram[gpu]; known {
		return &bytes
	}
	return nil
}
