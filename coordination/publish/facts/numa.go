// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"strconv"
	"strings"

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

// readNUMA reads the NUMA nodes of a tree (Documentation/ABI/stable/sysfs-devices-node). The nodes have what
// was read in spite of an error. A missing file is no error: a kernel without the file has no such fact.
func readNUMA(sys fs.FS, numbers []int) (nodes []NUMANode, err error) {
	cpus := topology.CPUs(sys)
	var failed []error
	read := func(format string, args ...any) string {
		name := fmt.Sprintf(format, args...)
		content, err := fs.ReadFile(sys, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("read NUMA nodes: %w", err))
		}
		return strings.TrimSpace(string(content))
	}
	for _, n := range model.ReadNUMANodes(sys, numbers) {
		node := NUMANode{Number: n.Number, Distances: n.Distances, CPUs: maps.Clone(cpus[n.Number])}
		if found := memTotal.FindStringSubmatch(read("devices/system/node/node%d/meminfo", n.Number)); found != nil {
			kilobytes, _ := strconv.ParseUint(found[1], 10, 54) // digits
			node.Memory = kilobytes * 1024
		}
		node.Cores, node.Socket = readCores(read, node.CPUs)
		nodes = append(nodes, node)
	}
	return nodes, errors.Join(failed...)
}
