// SPDX-License-Identifier: Apache-2.0

package qualify

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

// makePlans returns the placement of containers with 1, 2, 4 and so on pairs, and with as many as possible,
// on the empty machine.
func makePlans(n *machine.Node) ([]pairPlan, error) {
	vfs, _, err := n.VFPools("")
	if err != nil {
		return nil, err
	}
	list := []pairPlan{}
	most := min(len(n.GPUDevices()), len(machine.Devices(vfs)))
	var counts []int
	for count := 1; count < most; count *= 2 {
		counts = append(counts, count)
	}
	if most > 0 {
		counts = append(counts, most)
	}
	for _, count := range counts {
		q := machine.Question{GPUs: uint(count), VFs: uint(count)}
		answer, _, err := q.Answer(n)
		if err != nil {
			return nil, err
		}
		list = append(list, pairPlan{Count: count, Nodes: answer.Nodes, Pairs: answer.Pairs})
	}
	return list, nil
}

// countNear returns the number of pairs over which GPUDirect RDMA works.
func (p pairPlan) countNear() (count int) {
	for _, pair := range p.Pairs {
		if pair.Distance.Direct() {
			count++
		}
	}
	return count
}

// possiblePairs returns the greatest number of near pairs of devices on NUMA nodes, or on all without nodes.
// It is independent of package placement.
func possiblePairs(n *machine.Node, nodes []int) int {
	on := func(list []model.Device) []model.Device {
		return slices.DeleteFunc(list, func(d model.Device) bool {
			node, known := d.NUMA.Number()
			return known && len(nodes) > 0 && !slices.Contains(nodes, node)
		})
	}
	all, _, _ := n.VFPools("") // without config.json there is no error
	gpus, vfs := on(n.GPUDevices()), on(machine.Devices(all))
	return matchMost(len(gpus), len(vfs), func(gpu, vf int) bool {
		return n.Tree.Distance(gpus[gpu].Address, vfs[vf].Address).Level.Direct()
	})
}

// matchMost returns the greatest number of GPUs that can have a near VF of their own, by augmenting paths.
func matchMost(gpus, vfs int, near func(gpu, vf int) bool) (count int) {
	of := slices.Repeat([]int{-1}, vfs) // GPU of each VF, -1 for none
	var seen []bool
	var augment func(gpu int) bool // gives a GPU a VF, and other GPUs another one if necessary
	augment = func(gpu int) bool {
		for vf := range of {
			if seen[vf] || !near(gpu, vf) {
				continue
			}
			seen[vf] = true
			if of[vf] < 0 || augment(of[vf]) {
				of[vf] = gpu
				return true
			}
		}
		return false
	}
	for gpu := range gpus {
		seen = make([]bool, vfs)
		if augment(gpu) {
			count++
		}
	}
	return count
}

// judgeNCCL compares the switches and NUMA nodes of NCCL's topology with the PCI tree of the machine. NCCL's
// file has no C2C link. A NIC with a DMA function is at its own place or at the function's, as NCCL's version
// and settings have it.
func (r *Report) judgeNCCL(n *machine.Node) partResult {
	j := newJudgement("nccl")
	if r.NCCL == nil {
		j.miss("no topology of NCCL or RCCL: run a program of theirs with NCCL_TOPO_DUMP_FILE, and add the file " +
			"with --nccl-topology")
		return j.summarise("unknown")
	}
	c := comparison{judgement: j, tree: n.Tree, merged: mergedNICs(n.Tree)}
	gpus, nics := c.knownPlaces(r.NCCL.GPUs), c.knownPlaces(r.NCCL.NICs)
	for _, gpu := range gpus {
		for _, nic := range nics {
			c.comparePair(gpu, nic)
		}
	}
	if len(gpus) == 0 || len(nics) == 0 {
		j.miss("the topology has no pair of a GPU and a NIC")
	}
	return j.summarise("%s and %s, %d of %s agree", cli.Count(len(gpus), "GPU"),
		cli.Count(len(nics), "NIC"), c.agree, cli.Count(len(gpus)*len(nics), "distance"))
}

// comparison compares a topology file with a tree.
type comparison struct {
	*judgement
	tree   *topology.Tree
	merged map[topology.Address]*topology.Device
	agree  int
}

// located is a function at its place by NCCL.
type located struct {
	*topology.Device
	by nccl.Function
}

// mergedNICs returns a NIC for each address at which NCCL may have the NIC: NCCL replaces the function by
// zero, and with NCCL_IB_MERGE_VFS the device, in some versions only the last digit of the device
// (ncclIbGetPciPath in src/transport/net_ib of NCCL). The machine may lack a function at this address.
func mergedNICs(t *topology.Tree) map[topology.Address]*topology.Device {
	all := map[topology.Address]*topology.Device{}
	for d := range t.Devices() {
		if !d.IsNIC() {
			continue
		}
		for _, digits := range []uint8{0, 0x0f, 0x1f} {
			at := d.Address
			at.Device, at.Function = at.Device&^digits, 0
			if all[at] == nil {
				all[at] = d
			}
		}
	}
	return all
}

// knownPlaces returns the places whose functions the machine has, and compares their NUMA nodes.
func (c *comparison) knownPlaces(places []nccl.Function) (known []located) {
	for _, p := range places {
		d, ok := c.tree.Device(p.Address)
		if !ok {
			d, ok = c.merged[p.Address]
		}
		if !ok {
			c.fail("%s is in the topology of NCCL, and the machine lacks it", p.Address)
			continue
		}
		if by, told := p.NUMA.Number(); told && !isOn(c.tree, d, by) {
			c.fail("%s is on NUMA node %d by NCCL, and on node %s by sysfs", p.Address, by, d.NUMA)
		}
		known = append(known, located{d, p})
	}
	return known
}

// isOn reports whether a function may be on a NUMA node: the function's own, or that of its DMA function. An
// unknown node may be any.
func isOn(t *topology.Tree, d *topology.Device, node int) bool {
	for _, place := range []topology.NUMANode{d.NUMA, t.NUMA(d.Address)} {
		if number, known := place.Number(); !known || number == node {
			return true
		}
	}
	return false
}

func (c *comparison) comparePair(gpu, nic located) {
	at, _ := c.tree.Place(nic.Address)
	own, place := commonBridges(gpu.Bridges(), nic.Bridges()), commonBridges(gpu.Bridges(), at.Bridges)
	by, named := commonBridges(gpu.by.Bridges, nic.by.Bridges), slices.Concat(gpu.by.Bridges, nic.by.Bridges)
	agrees := func(sysfs []topology.Address) bool {
		return (len(by) > 0) == (len(sysfs) > 0) && slices.Equal(by, commonBridges(sysfs, named))
	}
	switch pair := fmt.Sprintf("GPU %s and NIC %s", gpu.Address, nic.by.Address); {
	case agrees(own) || agrees(place):
		c.agree++
	case len(own) == 0 && len(place) == 0:
		c.fail("%s are below one switch by NCCL, and not by sysfs", pair)
	case len(by) == 0:
		c.fail("%s are below one switch by sysfs, and not by NCCL", pair)
	default:
		c.fail("%s have the common bridges %s by NCCL, and %s by sysfs", pair, by, commonBridges(place, named))
	}
}

// commonBridges returns the bridges that are in both lists. The lists of NCCL lack root ports and the
// downstream ports of switches: two cards below one root port are below one switch.
func commonBridges(a, b []topology.Address) []topology.Address {
	return slices.DeleteFunc(slices.Clone(a), func(x topology.Address) bool { return !slices.Contains(b, x) })
}
