// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// NUMA is a NUMA node of the machine.
type NUMA struct {
	ID        int
	Distances []uint64 // to every node in ascending order, itself included (10)
	CPUs      []int    // ascending; empty if unknown
	Cores     [][]int  // the CPUs of each core; if empty, each CPU is a core
	Socket    int      // of the CPUs
	Memory    uint64   // bytes; 0 if unknown
	HugePages uint64   // of the memory, in pages of 2 MiB
}

// Default distances of firmware (ACPI SLIT) to the node itself and to other nodes.
const (
	localDistance  = 10
	remoteDistance = 20
)

// ReadNUMA returns the NUMA nodes with these numbers. It reads distances from a sysfs root; for recorded
// machines without distances all nodes are equally far apart. Without known nodes it returns a single one,
// because cAdvisor would take sockets for nodes (GetNodesInfo in utils/sysinfo/sysinfo.go).
func ReadNUMA(sys fs.FS, numbers []int) ([]NUMA, error) {
	if len(numbers) == 0 {
		numbers = []int{0}
	}
	nodes := make([]NUMA, 0, len(numbers))
	for i, number := range numbers {
		n := NUMA{ID: number, Distances: slices.Repeat([]uint64{remoteDistance}, len(numbers)), Socket: number}
		n.Distances[i] = localDistance
		if err := n.read(sys); err != nil {
			return nil, fmt.Errorf("read NUMA node %d: %w", number, err)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// read reads the files distance and cpulist of devices/system/node/node<N>, if they are there.
func (n *NUMA) read(sys fs.FS) error {
	folder := fmt.Sprintf("devices/system/node/node%d/", n.ID)
	text, err := fs.ReadFile(sys, folder+"distance")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(text) > 0 {
		n.Distances = nil
	}
	for field := range strings.FieldsSeq(string(text)) {
		distance, err := strconv.ParseUint(field, 10, 32)
		if err != nil {
			return fmt.Errorf("parse distance: %w", err)
		}
		n.Distances = append(n.Distances, distance)
	}
	text, err = fs.ReadFile(sys, folder+"cpulist")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	set, err := cpuset.Parse(strings.TrimSpace(string(text)))
	n.CPUs = set.List()
	return err
}

// cadvisorInfo converts the nodes to cAdvisor's form of the machine, the kubelet's input.
func cadvisorInfo(nodes []NUMA) *cadvisorMachine {
	machine := &cadvisorMachine{}
	sockets := map[int]bool{}
	for _, n := range nodes {
		node := cadvisorNode{Id: n.ID, Distances: n.Distances, Memory: n.Memory}
		if n.HugePages > 0 {
			node.HugePages = []cadvisorHugePages{{PageSize: hugePage >> 10, NumPages: n.HugePages / hugePage}}
		}
		for _, threads := range n.cores() {
			node.Cores = append(node.Cores, cadvisorCore{Id: threads[0], Threads: threads, SocketID: n.Socket})
			machine.NumCores += len(threads) // as cAdvisor counts
			sockets[n.Socket] = true
		}
		machine.Topology = append(machine.Topology, node)
	}
	machine.NumSockets = len(sockets)
	return machine
}

// Describe returns the NUMA node as a node publishes it.
func (n NUMA) Describe() v1alpha1.NUMANode {
	described := v1alpha1.NUMANode{
		Number: n.ID, CPUs: v1alpha1.SetOf(n.CPUs...),
		Memory: map[string]v1alpha1.Memory{"memory": {Total: n.Memory}},
	}
	for _, d := range n.Distances {
		described.Distances = append(described.Distances, int(d))
	}
	for _, core := range n.Cores {
		if len(core) > 1 {
			described.Cores = append(described.Cores, v1alpha1.SetOf(core...))
		}
	}
	if len(n.CPUs) > 0 && n.Socket != n.ID {
		described.Socket = new(n.Socket)
	}
	return described
}

// hugePage is the size of a huge page.
const hugePage = 2 << 20

// cores returns the CPUs by core.
func (n NUMA) cores() [][]int {
	if n.Cores != nil {
		return n.Cores
	}
	var cores [][]int
	for _, cpu := range n.CPUs {
		cores = append(cores, []int{cpu})
	}
	return cores
}
