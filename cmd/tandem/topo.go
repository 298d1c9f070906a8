package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/picture"
	"github.com/tandem-k8s/tandem/topology"
)

func newTopo() *cobra.Command {
	var from source
	var runDir string
	var all, verbose bool
	var only []string
	format := oneOf(asTable, asJSON, asSVG, asHTML, asNCCL)
	cmd := &cobra.Command{
		Use:   "topo",
		Short: "Show how near GPUs and NICs are to each other",
		Long: `Show the distance of every GPU to every NIC and to every other GPU, in the words of "nvidia-smi topo -m", from sysfs
alone: for AMD and NVIDIA alike, without a vendor's tools or libraries. VFs are where their PF is. How much memory an
NVIDIA GPU has is in no file: tandem-gpu tells root, where it runs.

With -o nccl it writes a topology file for NCCL and RCCL (NCCL_TOPO_FILE), of the whole node or of a container's devices. The other way
round, --topology-file says which devices share a switch where sysfs does not: in guests with a flat PCI tree.`,
		Example: `  tandem topo
  sudo tandem topo -v
  tandem topo -o json
  tandem topo -o html >node.html
  tandem topo -o nccl --devices container >/tmp/topo.xml
  tandem topo --topology-file /opt/microsoft/ndv5-topo.xml
  tandem topo --machine test/machines/oci-mi300x-derived.txt`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := from.check(cmd.Flags()); err != nil {
				return err
			}
			if len(only) > 0 && format.format != asNCCL {
				return usage("--devices belongs to -o nccl")
			}
			n, err := readNode(&from)
			if err != nil {
				return err
			}
			if from.isHere() || cmd.Flags().Changed("run-dir") {
				n.askVRAM(cmd.Context(), runDir)
			}
			for _, note := range n.notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
			}
			m := newMatrix(n, all)
			if format.format == asNCCL {
				return writeNCCL(cmd.OutOrStdout(), m, n, &from, only)
			}
			if verbose {
				m.Verbose = newVerbose(n, m)
			}
			return writeTopo(cmd.OutOrStdout(), m, n, from.title(), format.format)
		},
	}
	from.register(cmd.Flags())
	cmd.Flags().VarP(&format, "output", "o", format.usage())
	cmd.Flags().StringVar(&runDir, "run-dir", "/run/tandem", "the plugins' --run-dir")
	cmd.Flags().StringSliceVar(&only, "devices", nil, `with -o nccl: addresses of the GPUs and VFs to write, or "container" for those of the container that this runs in`)
	cmd.Flags().BoolVar(&all, "all", false, "show NICs without RDMA too")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "show PCIe links, IOMMU groups, RDMA ports, and what ACS does to same-switch pairs (root alone can read that)")
	return cmd
}

func writeTopo(w io.Writer, m *matrix, n *node, title, format string) error {
	switch format {
	case asJSON:
		return writeJSON(w, m)
	case asSVG:
		_, err := w.Write(n.picture(title, m).SVG())
		return err
	case asHTML:
		page, err := picture.Page{Title: title, Node: n.picture(title, m)}.HTML()
		if err != nil {
			return err
		}
		_, err = w.Write(page)
		return err
	default:
		_, err := w.Write(m.table())
		return err
	}
}

// matrix is the answer, as JSON has it.
type matrix struct {
	GPUs         []gpuEntry      `json:"gpus"`
	NICs         []nicEntry      `json:"nics"`
	Distances    []distanceEntry `json:"distances"`
	GPUDistances []gpuDistance   `json:"gpu_distances"`
	Links        []linkEntry     `json:"links"`
	Verbose      *verbose        `json:"verbose,omitempty"`
}

type gpuEntry struct {
	ID         string           `json:"id"` // the address; for AMD that is the kubelet's device ID too
	Address    topology.Address `json:"address"`
	NUMA       *int             `json:"numa"`
	Model      string           `json:"model"`
	VRAM       *uint64          `json:"vram"`                 // bytes
	Partitions []string         `json:"partitions,omitempty"` // device IDs, where there are several
}

type nicEntry struct {
	Address topology.Address   `json:"address"`
	NUMA    *int               `json:"numa"`
	Netdev  string             `json:"netdev"`
	RDMA    string             `json:"rdma"`
	VFs     []topology.Address `json:"vfs"`
}

type distanceEntry struct {
	GPU      topology.Address `json:"gpu"`
	NIC      topology.Address `json:"nic"`
	Distance topology.Level   `json:"distance"`
	Bridges  int              `json:"bridges"`
}

type gpuDistance struct {
	A        topology.Address `json:"a"`
	B        topology.Address `json:"b"`
	Distance topology.Level   `json:"distance"`
	Bridges  int              `json:"bridges"`
}

type linkEntry struct {
	A     topology.Address  `json:"a"`
	B     topology.Address  `json:"b"`
	Type  topology.LinkType `json:"type"`
	Hops  int               `json:"hops"`
	Count int               `json:"count"`
}

// newMatrix measures every pair. Without all the NICs are those with RDMA, unless there is none.
func newMatrix(n *node, all bool) *matrix {
	m := &matrix{
		GPUs: []gpuEntry{}, NICs: []nicEntry{}, Distances: []distanceEntry{}, GPUDistances: []gpuDistance{}, Links: []linkEntry{},
	}
	nics := n.rdmaNICs()
	if all || len(nics) == 0 {
		nics = n.nics
	}
	for _, nic := range nics {
		m.NICs = append(m.NICs, newNICEntry(nic))
	}
	for i, a := range n.gpus {
		m.GPUs = append(m.GPUs, n.newGPUEntry(a))
		for _, nic := range nics {
			d := n.tree.Distance(a.Address, nic.Address)
			m.Distances = append(m.Distances, distanceEntry{a.Address, nic.Address, d.Level, d.Bridges})
		}
		for _, b := range n.gpus[i+1:] {
			d := n.tree.Distance(a.Address, b.Address)
			m.GPUDistances = append(m.GPUDistances, gpuDistance{a.Address, b.Address, d.Level, d.Bridges})
		}
	}
	for _, l := range n.links {
		m.Links = append(m.Links, linkEntry(l))
	}
	return m
}

func (n *node) newGPUEntry(d *topology.Device) gpuEntry {
	e := gpuEntry{ID: d.Address.String(), Address: d.Address, NUMA: number(d.NUMA), Model: model(d), VRAM: n.memory(d.Address)}
	if parts := n.parts[d.Address]; len(parts) > 1 {
		for _, part := range parts {
			e.Partitions = append(e.Partitions, part.ID)
		}
	}
	return e
}

func newNICEntry(d *topology.Device) nicEntry {
	e := nicEntry{Address: d.Address, NUMA: number(d.NUMA), VFs: d.VFs}
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
