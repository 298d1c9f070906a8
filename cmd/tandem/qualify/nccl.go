// SPDX-License-Identifier: Apache-2.0

package qualify

import (
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/topology"
)

// judgeNCCL compares the switches and NUMA nodes of NCCL's topology with the PCI tree of the machine. NCCL's
// file has no C2C link. A NIC with a DMA function is at its own place or at the function's, as NCCL's version
// and settings have it.
func (r *Report) judgeNCCL(n *machine.Node) Result {
	j := about("nccl")
	if r.NCCL == nil {
		j.miss("no topology of NCCL or RCCL: run a program of theirs with NCCL_TOPO_DUMP_FILE, and add the file " +
			"with --nccl-topology")
		return j.summarise("unknown")
	}
	c := comparison{judgement: j, tree: n.Tree}
	gpus, nics := c.known(r.NCCL.GPUs), c.known(r.NCCL.NICs)
	for _, gpu := range gpus {
		for _, nic := range nics {
			c.compare(gpu, nic)
		}
	}
	if len(gpus) == 0 || len(nics) == 0 {
		j.miss("the topology has no pair of a GPU and a NIC")
	}
	return j.summarise("%s and %s, %d of %s agree", document.Count(len(gpus), "GPU"),
		document.Count(len(nics), "NIC"), c.agree, document.Count(len(gpus)*len(nics), "distance"))
}

// comparison compares a topology file with a tree.
type comparison struct {
	*judgement
	tree  *topology.Tree
	agree int
}

// known returns the places whose functions the machine has, and compares their NUMA nodes.
func (c *comparison) known(places []Place) (known []Place) {
	for _, p := range places {
		d, ok := c.tree.Device(p.Address)
		if !ok {
			c.fail("%s is in the topology of NCCL, and the machine lacks it", p.Address)
			continue
		}
		if by, told := p.NUMA.Number(); told && !c.isOn(d, by) {
			c.fail("%s is on NUMA node %d by NCCL, and on node %s by sysfs", p.Address, by, d.NUMA)
		}
		known = append(known, p)
	}
	return known
}

// isOn reports whether a function may be on a NUMA node. An unknown node may be any.
func (c *comparison) isOn(d *topology.Device, node int) bool {
	for _, place := range []topology.NUMANode{d.NUMA, c.tree.NUMA(d.Address)} {
		if number, known := place.Number(); !known || number == node {
			return true
		}
	}
	return false
}

func (c *comparison) compare(gpu, nic Place) {
	g, _ := c.tree.Device(gpu.Address) // of known
	d, _ := c.tree.Device(nic.Address)
	at, _ := c.tree.Place(nic.Address)
	by := haveCommonBridge(gpu.Bridges, nic.Bridges)
	switch own, place := haveCommonBridge(g.Bridges(), d.Bridges()), haveCommonBridge(g.Bridges(), at.Bridges); {
	case by == own || by == place:
		c.agree++
	case by:
		c.fail("GPU %s and NIC %s are below one switch by NCCL, and not by sysfs", gpu.Address, nic.Address)
	default:
		c.fail("GPU %s and NIC %s are below one switch by sysfs, and not by NCCL", gpu.Address, nic.Address)
	}
}

// haveCommonBridge reports whether two lists of bridges, from the top down, begin with the same bridge. NCCL
// leaves out root ports, sysfs has them: two cards below one root port are below one switch.
func haveCommonBridge(a, b []topology.Address) bool {
	return len(a) > 0 && len(b) > 0 && a[0] == b[0]
}
