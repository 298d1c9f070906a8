// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// Verbose has further facts that affect the speed of pairs: the current state of links, and whether traffic
// takes the direct path.
type Verbose struct {
	GPUs  []gpuFacts  `json:"gpus"` // in the order of the matrix
	NICs  []nicFacts  `json:"nics"`
	Pairs []pairFacts `json:"pairs"` // pairs on one switch, or over C2C
}

// gpuFacts is the state of a GPU's link, and the GPU's IOMMU group.
type gpuFacts struct {
	Address topology.Address `json:"address"`
	PCIe    linkFacts        `json:"pcie"`
	IOMMU   string           `json:"iommuGroup"` // "" for none
}

// nicFacts is the same of a NIC, and its ports.
type nicFacts struct {
	gpuFacts
	Ports []portFacts `json:"ports"`
}

// linkFacts is a PCIe link; zero is unknown. For a VF, it is the PF's link.
type linkFacts struct {
	topology.PCIeLink
	Degraded bool `json:"degraded"`
}

// portFacts is a port of an RDMA device, in the words of the kernel
// (Documentation/ABI/stable/sysfs-class-infiniband).
type portFacts struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
	State  string `json:"state"` // "4: ACTIVE"
	Rate   string `json:"rate"`  // "400 Gb/sec (4X NDR)"
}

// pairFacts is the effect of ACS between a GPU and a NIC of one switch. If any port on the way redirects,
// traffic goes up to the host bridge and down again, as with PHB.
type pairFacts struct {
	GPU topology.Address   `json:"gpu"`
	NIC topology.Address   `json:"nic"`
	ACS topology.ACS       `json:"acs"`
	At  []topology.Address `json:"redirectAt"` // redirecting ports

	gpu, nic int // positions in the matrix
	word     topology.Level
	function *topology.Address // the DMA function in the place of the NIC; nil for none
}

// dmaFunctions returns the DMA functions in the place of NICs.
func dmaFunctions(tree *topology.Tree) map[topology.Address]*topology.Address {
	of := map[topology.Address]*topology.Address{}
	for _, c := range tree.Complexes() {
		if c.Kind == topology.KindDMA && c.Fault == "" {
			for _, nic := range c.NICs {
				of[nic] = &c.Function
			}
		}
	}
	return of
}

// readVerbose reads the facts for the GPUs and NICs of a matrix.
func readVerbose(n *Node, gpus, nics []topology.Address) *Verbose {
	v := &Verbose{GPUs: []gpuFacts{}, NICs: []nicFacts{}, Pairs: []pairFacts{}}
	for _, gpu := range gpus {
		v.GPUs = append(v.GPUs, readFacts(n, gpu))
	}
	for _, nic := range nics {
		v.NICs = append(v.NICs, nicFacts{readFacts(n, nic), readPorts(n, nic)})
	}
	functions := dmaFunctions(n.Tree)
	for i, gpu := range gpus {
		for k, nic := range nics {
			if level := n.Tree.Distance(gpu, nic).Level; level.Direct() {
				p := pairFacts{GPU: gpu, NIC: nic, gpu: i, nic: k, word: level, function: functions[nic]}
				p.readACS(n.Tree)
				v.Pairs = append(v.Pairs, p)
			}
		}
	}
	return v
}

// readACS goes through the ports on the way.
func (p *pairFacts) readACS(tree *topology.Tree) {
	p.ACS, p.At = topology.ACSOff, []topology.Address{}
	for _, port := range tree.Ports(p.GPU, p.NIC) {
		bridge, ok := tree.Device(port.Address)
		switch {
		case port.Redirects:
			p.ACS, p.At = topology.ACSRedirect, append(p.At, port.Address)
		case (!ok || bridge.ACS == topology.ACSUnknown) && p.ACS == topology.ACSOff:
			p.ACS = topology.ACSUnknown
		}
	}
}

func readFacts(n *Node, a topology.Address) gpuFacts {
	t := gpuFacts{Address: a, IOMMU: pools.ReadLink(n.Sys, pools.FunctionFile(a, "", "iommu_group"))}
	if d, ok := n.Tree.Device(a); ok {
		t.PCIe = linkFacts{d.PCIe, d.PCIe.Degraded()}
	}
	return t
}

func readPorts(n *Node, a topology.Address) []portFacts {
	ports := []portFacts{}
	d, ok := n.Tree.Device(a)
	if !ok {
		return ports
	}
	for _, rdma := range d.RDMA {
		dir := pools.FunctionFile(a, "", "infiniband", rdma, "ports")
		for _, name := range topology.Names(n.Sys, dir) {
			number, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			ports = append(ports, portFacts{
				Device: rdma, Port: number, State: pools.ReadText(n.Sys, path.Join(dir, name, "state")),
				Rate: pools.ReadText(n.Sys, path.Join(dir, name, "rate")),
			})
		}
	}
	return ports
}

// stateName returns the state without its number: "ACTIVE" for "4: ACTIVE" (state_show in
// drivers/infiniband/core/sysfs.c).
func (p portFacts) stateName() string {
	if _, name, numbered := strings.Cut(p.State, ": "); numbered {
		return name
	}
	return p.State
}

func (v *Verbose) writeTo(out *cli.Text) {
	out.Line()
	for i, g := range v.GPUs {
		out.Row(fmt.Sprint("GPU", i), g.PCIe, iommuText(g.IOMMU))
	}
	for i, n := range v.NICs {
		cells := []any{fmt.Sprint("NIC", i), n.PCIe, iommuText(n.IOMMU)}
		for _, p := range n.Ports {
			cells = append(cells, fmt.Sprintf("%s port %d: %s, %s", p.Device, p.Port,
				cmp.Or(p.stateName(), "state unknown"),
				cmp.Or(p.Rate, "rate unknown")))
		}
		out.Row(cells...)
	}
	if len(v.Pairs) > 0 {
		out.Line()
	}
	for _, p := range v.Pairs {
		out.Row(fmt.Sprintf("GPU%d NIC%d", p.gpu, p.nic), p.word, p.describeTraffic())
	}
}

// describeTraffic describes the pair in words.
func (p pairFacts) describeTraffic() string {
	if p.word == topology.C2C {
		return "NVLink-C2C of the CPU: ACS of switches has no effect"
	}
	traffic := "traffic"
	if p.function != nil {
		traffic = "traffic of DMA function " + p.function.String()
	}
	switch p.ACS {
	case topology.ACSRedirect:
		return "ACS redirect at " + listAddresses(p.At, "") + ": " + traffic + " goes through the host bridge"
	case topology.ACSOff:
		return "no ACS redirect: " + traffic + " stays within the switch"
	default:
		return "ACS unknown: only root reads and records it"
	}
}

// String formats the link like lspci, with the link's maximum if that is higher.
func (l linkFacts) String() string {
	if l.Speed == 0 || l.Width == 0 {
		return "PCIe unknown"
	}
	text := fmt.Sprintf("PCIe %g GT/s x%d", l.Speed, l.Width)
	if l.Degraded {
		text += fmt.Sprintf(" of %g GT/s x%d", l.MaxSpeed, l.MaxWidth)
	}
	return text
}

func iommuText(group string) string {
	if group == "" {
		return "no IOMMU group"
	}
	return "IOMMU group " + group
}
