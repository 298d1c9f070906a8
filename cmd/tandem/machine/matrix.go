// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// Matrix is the answer, in JSON.
type Matrix struct {
	Version      document.V1     `json:"version"`
	GPUs         []GPU           `json:"gpus"`
	NICs         []NIC           `json:"nics"`
	Distances    []Distance      `json:"distances"`
	GPUDistances []gpuDistance   `json:"gpuDistances"`
	Links        []topology.Link `json:"links"`
	Complexes    []Complex       `json:"complexes,omitempty"`
	Verbose      *Verbose        `json:"verbose,omitempty"`
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

// gpuDistance is the distance of two GPUs by PCIe.
type gpuDistance struct {
	A        topology.Address `json:"a"`
	B        topology.Address `json:"b"`
	Distance topology.Level   `json:"distance"`
	Bridges  int              `json:"bridges"`
}

// NewMatrix measures every pair. Unless all is set, NICs without RDMA are left out if any NIC has RDMA.
func NewMatrix(n *Node, all bool) *Matrix {
	m := &Matrix{
		GPUs: []GPU{}, NICs: []NIC{}, Distances: []Distance{}, GPUDistances: []gpuDistance{},
		Links: []topology.Link{},
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
			m.GPUDistances = append(m.GPUDistances, gpuDistance{a.Address, b.Address, d.Level, d.Bridges})
		}
	}
	m.Links = append(m.Links, n.Links...)
	for _, c := range n.Tree.Complexes() {
		m.Complexes = append(m.Complexes, newComplex(c))
	}
	return m
}

// ReadVerbose adds further facts that affect the speed of pairs.
func (m *Matrix) ReadVerbose(n *Node) {
	var gpus, nics []topology.Address
	for _, g := range m.GPUs {
		gpus = append(gpus, g.Address)
	}
	for _, nic := range m.NICs {
		nics = append(nics, nic.Address)
	}
	m.Verbose = readVerbose(n, gpus, nics)
}

func newGPU(n *Node, d *topology.Device) GPU {
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

// Complex is a set of GPUs and NICs that are near each other without a switch between root port and devices,
// or that would be near without the fault.
type Complex struct {
	Kind topology.Kind      `json:"kind"` // dma, c2c or inline
	GPUs []topology.Address `json:"gpus"`
	NICs []topology.Address `json:"nics"`
	// Function is the DMA function of kind dma.
	Function topology.Address `json:"function,omitzero"`
	// Switch is the upstream port of the NIC's switch.
	Switch topology.Address `json:"switch,omitzero"`
	Fault  string           `json:"fault,omitempty"` // the reason why no NIC is near the GPUs
}

func newComplex(c topology.Complex) Complex {
	return Complex{
		Kind: c.Kind, GPUs: append([]topology.Address{}, c.GPUs...), NICs: append([]topology.Address{}, c.NICs...),
		Function: c.Function, Switch: c.Switch, Fault: c.Fault,
	}
}

// writeComplexes writes a line for each complex.
func (m *Matrix) writeComplexes(out *bytes.Buffer) {
	for i, c := range m.Complexes {
		if i == 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s: %s with %s", c.title(), list(c.GPUs, "no GPU"), list(c.NICs, "no NIC"))
		if c.Fault != "" {
			fmt.Fprintf(out, "; not near: %s", c.Fault)
		}
		fmt.Fprintln(out)
	}
}

func (c Complex) title() string {
	switch {
	case c.Function != topology.Address{}:
		return fmt.Sprintf("%s, DMA function %s", c.Kind, c.Function)
	case c.Switch != topology.Address{}:
		return fmt.Sprintf("%s, switch %s", c.Kind, c.Switch)
	default:
		return string(c.Kind)
	}
}

// list returns addresses with commas, or a text for none.
func list(addresses []topology.Address, none string) string {
	var names []string
	for _, a := range addresses {
		names = append(names, a.String())
	}
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}
