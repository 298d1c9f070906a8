// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/tandem-k8s/tandem/cmd/internal/picture"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

const legend = `
X      the GPU itself
PIX    same switch: the lowest one above either card is shared
PXB    a switch further up is shared, below the host bridge
C2C    a GPU on NVIDIA Grace or Vera and a ConnectX NIC of the same NUMA node
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
func (m *Matrix) Table() []byte {
	var out bytes.Buffer
	if len(m.GPUs) > 0 {
		m.writeCells(&out)
		out.WriteByte('\n')
	}
	m.writeNames(&out)
	m.writeComplexes(&out)
	if m.Verbose != nil {
		m.Verbose.write(&out)
	}
	out.WriteString(legend)
	if slices.ContainsFunc(m.Distances, func(d Distance) bool { return d.MayBeNearer }) {
		out.WriteString(unreadLegend)
	}
	if len(m.Links) > 0 {
		out.WriteString(xgmiLegend)
	}
	return out.Bytes()
}

func (m *Matrix) writeCells(out *bytes.Buffer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var head strings.Builder
	for i := range m.GPUs {
		fmt.Fprintf(&head, "\tGPU%d", i)
	}
	for i := range m.NICs {
		fmt.Fprintf(&head, "\tNIC%d", i)
	}
	fmt.Fprintf(w, "%s\tNUMA\n", head.String())
	for i := range m.GPUs {
		fmt.Fprintf(w, "GPU%d", i)
		for k := range m.GPUs {
			fmt.Fprintf(w, "\t%s", m.gpuCell(i, k))
		}
		for k := range m.NICs {
			fmt.Fprintf(w, "\t%s", m.Distances[i*len(m.NICs)+k].cell())
		}
		fmt.Fprintf(w, "\t%s\n", nodeText(m.GPUs[i].NUMA))
	}
	_ = w.Flush() // to memory
}

// cell returns the level, with a question mark if it may be nearer.
func (d Distance) cell() string {
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

func (m *Matrix) writeNames(out *bytes.Buffer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, g := range m.GPUs {
		fmt.Fprintf(w, "GPU%d\t%s\tNUMA %s\t%s", i, g.Address, nodeText(g.NUMA), g.Model)
		if g.VRAM != nil {
			fmt.Fprintf(w, ", %.0f GiB", float64(*g.VRAM)/(1<<30))
		}
		if len(g.Partitions) > 0 {
			fmt.Fprintf(w, ", %d partitions", len(g.Partitions))
		}
		fmt.Fprintln(w)
	}
	if len(m.GPUs) == 0 {
		fmt.Fprintln(w, "no GPU of "+gpu.Titles())
	}
	for i, n := range m.NICs {
		fmt.Fprintf(w, "NIC%d\t%s\tNUMA %s\t%s\t%s\t%s\n", i, n.Address, nodeText(n.NUMA),
			cmp.Or(n.RDMA, "no RDMA"), cmp.Or(n.Netdev, "no netdev"), vfsText(n.VFs))
	}
	if len(m.NICs) == 0 {
		fmt.Fprintln(w, "no NIC")
	}
	_ = w.Flush() // to memory
}

func nodeText(n topology.NUMANode) string {
	if number, known := n.Number(); known {
		return strconv.Itoa(number)
	}
	return "?"
}

func vfsText(vfs []topology.Address) string {
	switch len(vfs) {
	case 0:
		return "no VFs"
	case 1:
		return "1 VF"
	default:
		return fmt.Sprintf("%d VFs", len(vfs))
	}
}

// Picture returns the node with the cards of the matrix, named as in the matrix.
func (m *Matrix) Picture(title string, tree *topology.Tree) *picture.Node {
	drawn := &picture.Node{Title: title, Tree: tree, Summary: m.summary()}
	for i, g := range m.GPUs {
		card := picture.Card{Kind: picture.GPU, Name: fmt.Sprintf("GPU%d", i), Detail: g.Model, Address: g.Address}
		for _, id := range g.devices() {
			card.Devices = append(card.Devices, picture.Device{ID: id, Address: g.Address})
		}
		drawn.Cards = append(drawn.Cards, card)
	}
	for i, nic := range m.NICs {
		card := picture.Card{
			Kind:    picture.NIC,
			Name:    fmt.Sprintf("NIC%d", i),
			Detail:  cmp.Or(nic.RDMA, nic.Netdev),
			Address: nic.Address,
		}
		for _, vf := range nic.VFs {
			card.Devices = append(card.Devices, picture.Device{
				ID: vf.String(), Address: vf, Detail: picture.Names(tree, vf),
			})
		}
		drawn.Cards = append(drawn.Cards, card)
	}
	return drawn
}

// summary counts the devices, and the GPUs that can have a pair on one switch or over C2C.
func (m *Matrix) summary() []string {
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
		devices += len(g.devices())
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

// devices returns the IDs of the allocatable devices: the partitions, or the GPU itself.
func (g *GPU) devices() []string {
	if len(g.Partitions) == 0 {
		return []string{g.ID}
	}
	return g.Partitions
}
