// SPDX-License-Identifier: Apache-2.0

// Package topo measures the distances of a machine's GPUs and NICs, and shows them as a matrix and as a
// picture.
package topo

import (
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// Matrix is the answer, in JSON.
type Matrix struct {
	Version      document.V1   `json:"version"`
	GPUs         []GPU         `json:"gpus"`
	NICs         []NIC         `json:"nics"`
	Distances    []Distance    `json:"distances"`
	GPUDistances []GPUDistance `json:"gpuDistances"`
	Links        []Link        `json:"links"`
	Complexes    []Complex     `json:"complexes,omitempty"`
	Verbose      *Verbose      `json:"verbose,omitempty"`
}

// GPU is a GPU of the matrix.
type GPU struct {
	ID         string            `json:"id"` // the address; for AMD also the kubelet's device ID
	Address    topology.Address  `json:"address"`
	NUMA       topology.NUMANode `json:"numa"`
	Model      string            `json:"model"`
	VRAM       *uint64           `json:"vram"`                 // bytes
	Partitions []string          `json:"partitions,omitempty"` // device IDs, if there are several
}

// NIC is a network function of the matrix other than a VF.
type NIC struct {
	Address topology.Address   `json:"address"`
	NUMA    topology.NUMANode  `json:"numa"`
	Netdev  string             `json:"netdev"`
	RDMA    string             `json:"rdma"`
	VFs     []topology.Address `json:"vfs"`
}

// Distance is the distance of a GPU and a NIC.
type Distance struct {
	GPU      topology.Address `json:"gpu"`
	NIC      topology.Address `json:"nic"`
	Distance topology.Level   `json:"distance"`
	Bridges  int              `json:"bridges"`
	// MayBeNearer means that Vital Product Data is unread, which decides whether the NIC is near the GPU.
	MayBeNearer bool `json:"mayBeNearer,omitempty"`
}

// GPUDistance is the distance of two GPUs by PCIe.
type GPUDistance struct {
	A        topology.Address `json:"a"`
	B        topology.Address `json:"b"`
	Distance topology.Level   `json:"distance"`
	Bridges  int              `json:"bridges"`
}

// Link is a direct link between two GPUs.
type Link struct {
	A     topology.Address  `json:"a"`
	B     topology.Address  `json:"b"`
	Type  topology.LinkType `json:"type"`
	Hops  int               `json:"hops"`
	Count int               `json:"count"`
}

// NewMatrix measures every pair. Unless all is set, NICs without RDMA are left out if any NIC has RDMA.
func NewMatrix(n *machine.Node, all bool) *Matrix {
	m := &Matrix{
		GPUs: []GPU{}, NICs: []NIC{}, Distances: []Distance{}, GPUDistances: []GPUDistance{}, Links: []Link{},
	}
	nics := n.RDMANICs()
	if all || len(nics) == 0 {
		nics = n.NICs
	}
	for _, nic := range nics {
		m.NICs = append(m.NICs, newNIC(nic))
	}
	for i, a := range n.GPUs {
		m.GPUs = append(m.GPUs, newGPU(n, a))
		for _, nic := range nics {
			d := n.Tree.Distance(a.Address, nic.Address)
			m.Distances = append(m.Distances, Distance{
				a.Address, nic.Address, d.Level, d.Bridges, n.Tree.MayBeNearer(a.Address, nic.Address),
			})
		}
		for _, b := range n.GPUs[i+1:] {
			d := n.Tree.Distance(a.Address, b.Address)
			m.GPUDistances = append(m.GPUDistances, GPUDistance{a.Address, b.Address, d.Level, d.Bridges})
		}
	}
	for _, l := range n.Links {
		m.Links = append(m.Links, Link(l))
	}
	for _, c := range n.Tree.Complexes() {
		m.Complexes = append(m.Complexes, newComplex(c))
	}
	return m
}

// ReadVerbose adds further facts that affect the speed of pairs.
func (m *Matrix) ReadVerbose(n *machine.Node) {
	var gpus, nics []topology.Address
	for _, g := range m.GPUs {
		gpus = append(gpus, g.Address)
	}
	for _, nic := range m.NICs {
		nics = append(nics, nic.Address)
	}
	m.Verbose = readVerbose(n, gpus, nics)
}

func newGPU(n *machine.Node, d *topology.Device) GPU {
	e := GPU{
		ID:      d.Address.String(),
		Address: d.Address,
		NUMA:    d.NUMA,
		Model:   gpu.Model(d),
		VRAM:    n.VRAM(d.Address),
	}
	if parts := n.Parts[d.Address]; len(parts) > 1 {
		for _, part := range parts {
			e.Partitions = append(e.Partitions, part.ID)
		}
	}
	return e
}

func newNIC(d *topology.Device) NIC {
	e := NIC{Address: d.Address, NUMA: d.NUMA, VFs: d.VFs}
	if e.VFs == nil {
		e.VFs = []topology.Address{}
	}
	if len(d.Netdevs) > 0 {
		e.Netdev = d.Netdevs[0]
	}
	if len(d.RDMA) > 0 {
		e.RDMA = d.RDMA[0]
	}
	return e
}
