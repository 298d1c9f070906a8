// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"strconv"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// NUMANode is a NUMA node of the machine.
type NUMANode struct {
	Number    int
	Distances []int             // to all nodes, in their order; nil if unknown
	CPUs      topology.CPUSet   // online CPUs
	Cores     []topology.CPUSet // cores with several CPUs, by their lowest CPU
	Socket    int               // of the CPUs; -1 if unknown
	Memory    uint64            // bytes; 0 if unknown
}

// memTotal is a line of a node's meminfo (node_read_meminfo in drivers/base/node.c).
var memTotal = regexp.MustCompile(`(?m)^Node \d+ MemTotal: +(\d+) kB$`)

// readNUMA reads the NUMA nodes of a tree (Documentation/ABI/stable/sysfs-devices-node).
func readNUMA(sys fs.FS, numbers []int) []NUMANode {
	cpus := topology.CPUs(sys)
	var nodes []NUMANode
	for _, n := range model.ReadNUMANodes(sys, numbers) {
		node := NUMANode{Number: n.Number, Distances: n.Distances, CPUs: maps.Clone(cpus[n.Number])}
		content, _ := fs.ReadFile(sys, fmt.Sprintf("devices/system/node/node%d/meminfo", n.Number))
		if found := memTotal.FindSubmatch(content); found != nil {
			kilobytes, _ := strconv.ParseUint(string(found[1]), 10, 54) // digits
			node.Memory = kilobytes * 1024
		}
		node.Cores, node.Socket = readCores(sys, node.CPUs)
		nodes = append(nodes, node)
	}
	return nodes
}
