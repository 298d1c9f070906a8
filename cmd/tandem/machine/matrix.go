// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/picture"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// Matrix is the answer, in JSON.
type Matrix struct {
	Version      cli.V1          `json:"version"`
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
func (m *Matrix) writeComplexes(out *cli.Text) {
	for i, c := range m.Complexes {
		if i == 0 {
			out.Line()
		}
		fault := ""
		if c.Fault != "" {
			fault = "; not near: " + c.Fault
		}
		fmt.Fprintf(out, "%s: %s with %s%s\n", c.describeComplex(), listAddresses(c.GPUs, "no GPU"),
			listAddresses(c.NICs, "no NIC"), fault)
	}
}

func (c Complex) describeComplex() string {
	switch {
	case c.Function != topology.Address{}:
		return fmt.Sprintf("%s, DMA function %s", c.Kind, c.Function)
	case c.Switch != topology.Address{}:
		return fmt.Sprintf("%s, switch %s", c.Kind, c.Switch)
	default:
		return string(c.Kind)
	}
}

// listAddresses returns addresses with commas, or a text for none.
func listAddresses(addresses []topology.Address, none string) string {
	var names []string
	for _, a := range addresses {
		names = append(names, a.String())
	}
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}

const legend = `
X      the GPU itself
PIX    same switch: the lowest one above either card is shared
PXB    a switch further up is shared, below the host bridge
C2C    a GPU on NVIDIA Grace or Vera and a ConnectX or BlueField-3 NIC of the same NUMA node
PHB    the host bridge alone is shared
NODE   same NUMA node, different host bridges
SYS    different NUMA nodes
UNK    unknown
`

const unreadLegend = `?      may be nearer: Vital Product Data is unread, which only root reads and records
`

const xgmiLegend = `XGMI1  direct XGMI link; XGMI2 and on: as many hops
`

// Table returns the matrix as text: one line per GPU, one column per GPU and NIC, and a legend of the short
// names.
func (m *Matrix) Table() *cli.Text {
	var out cli.Text
	if len(m.GPUs) > 0 {
		m.writeCells(&out)
		out.Line()
	}
	m.writeNames(&out)
	m.writeComplexes(&out)
	if m.Verbose != nil {
		m.Verbose.writeTo(&out)
	}
	fmt.Fprint(&out, legend)
	if slices.ContainsFunc(m.Distances, func(d Distance) bool { return d.MayBeNearer }) {
		fmt.Fprint(&out, unreadLegend)
	}
	if len(m.Links) > 0 {
		fmt.Fprint(&out, xgmiLegend)
	}
	return &out
}

func (m *Matrix) writeCells(out *cli.Text) {
	head := []any{""}
	for i := range m.GPUs {
		head = append(head, fmt.Sprint("GPU", i))
	}
	for i := range m.NICs {
		head = append(head, fmt.Sprint("NIC", i))
	}
	out.Row(append(head, "NUMA")...)
	for i := range m.GPUs {
		cells := []any{fmt.Sprint("GPU", i)}
		for k := range m.GPUs {
			cells = append(cells, m.gpuCell(i, k))
		}
		for k := range m.NICs {
			cells = append(cells, m.Distances[i*len(m.NICs)+k].formatCell())
		}
		out.Row(append(cells, nodeText(m.GPUs[i].NUMA))...)
	}
}

// formatCell returns the level, with a question mark if it may be nearer.
func (d Distance) formatCell() string {
	if d.MayBeNearer {
		return d.Distance.String() + "?"
	}
	return d.Distance.String()
}

// gpuCell returns the XGMI link between two GPUs or, without a link, their PCIe distance.
func (m *Matrix) gpuCell(i, k int) string {
	if i == k {
		return "X"
	}
	i, k = min(i, k), max(i, k)
	a, b := m.GPUs[i].Address, m.GPUs[k].Address
	for _, l := range m.Links {
		if l.A == a && l.B == b || l.A == b && l.B == a {
			return string(l.Type) + strconv.Itoa(l.Hops)
		}
	}
	before := i*(len(m.GPUs)-1) - i*(i-1)/2 // pairs of the GPUs before
	return m.GPUDistances[before+k-i-1].Distance.String()
}

func (m *Matrix) writeNames(out *cli.Text) {
	for i, g := range m.GPUs {
		about := g.Model
		if g.VRAM != nil {
			about += fmt.Sprintf(", %.0f GiB", float64(*g.VRAM)/(1<<30))
		}
		if len(g.Partitions) > 0 {
			about += fmt.Sprintf(", %d partitions", len(g.Partitions))
		}
		out.Row(fmt.Sprint("GPU", i), g.Address, "NUMA "+nodeText(g.NUMA), about)
	}
	if len(m.GPUs) == 0 {
		out.Row("no GPU of " + gpu.Titles())
	}
	for i, n := range m.NICs {
		vfs := "no VFs"
		if len(n.VFs) > 0 {
			vfs = cli.Count(len(n.VFs), "VF")
		}
		out.Row(fmt.Sprint("NIC", i), n.Address, "NUMA "+nodeText(n.NUMA), cmp.Or(n.RDMA, "no RDMA"),
			cmp.Or(n.Netdev, "no netdev"), vfs)
	}
	if len(m.NICs) == 0 {
		out.Row("no NIC")
	}
}

func nodeText(n topology.NUMANode) string {
	if number, known := n.Number(); known {
		return strconv.Itoa(number)
	}
	return "?"
}

// Picture returns the node with the cards of the matrix, named as in the matrix.
func (m *Matrix) Picture(title string, tree *topology.Tree) *picture.Node {
	drawn := &picture.Node{Title: title, Tree: tree, Summary: m.summaryParts()}
	for _, g := range m.GPUs {
		card := drawn.AddCard(model.GPU, g.Model, g.Address)
		for _, id := range g.deviceIDs() {
			card.Devices = append(card.Devices, picture.Device{ID: id, Address: g.Address})
		}
	}
	for _, nic := range m.NICs {
		card := drawn.AddCard(model.VF, cmp.Or(nic.RDMA, nic.Netdev), nic.Address)
		for _, vf := range nic.VFs {
			card.Devices = append(card.Devices, picture.Device{
				ID: vf.String(), Address: vf, Detail: picture.ListNames(tree, vf),
			})
		}
	}
	return drawn
}

// summaryParts counts the devices, and the GPUs that can have a pair on one switch or over C2C.
func (m *Matrix) summaryParts() []string {
	vfs, near, c2c := 0, map[topology.Address]bool{}, map[topology.Address]bool{}
	for _, nic := range m.NICs {
		vfs += len(nic.VFs)
	}
	for _, d := range m.Distances {
		switch {
		case d.Distance == topology.C2C:
			c2c[d.GPU] = true
		case d.Distance.Direct():
			near[d.GPU] = true
		}
	}
	parts, devices := []string{fmt.Sprintf("GPUs %d", len(m.GPUs))}, 0
	for _, g := range m.GPUs {
		devices += len(g.deviceIDs())
	}
	if devices > len(m.GPUs) {
		parts = append(parts, fmt.Sprintf("partitions %d", devices))
	}
	parts = append(parts, fmt.Sprintf("NICs %d", len(m.NICs)), fmt.Sprintf("VFs %d", vfs))
	if len(c2c) > 0 { // then no GPU is below a switch
		return append(parts, fmt.Sprintf("GPUs with a NIC over NVLink-C2C %d", len(c2c)))
	}
	return append(parts, fmt.Sprintf("GPUs with a NIC on their switch %d", len(near)))
}

// deviceIDs returns the IDs of the allocatable devices: the partitions, or the GPU itself.
func (g *GPU) deviceIDs() []string {
	if len(g.Partitions) == 0 {
		return []string{g.ID}
	}
	return g.Partitions
}
