// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
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
		distances, err := readDistances(sys, number)
		if err != nil {
			return nil, err
		}
		if len(distances) == 0 {
			distances = uniformDistances(i, len(numbers))
		}
		cpus, err := readCPUs(sys, number)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, NUMA{ID: number, Distances: distances, CPUs: cpus, Socket: number})
	}
	return nodes, nil
}

// readDistances reads devices/system/node/node<N>/distance; nil without the file.
func readDistances(sys fs.FS, number int) ([]uint64, error) {
	file := path.Join("devices/system/node", fmt.Sprintf("node%d", number), "distance")
	text, err := fs.ReadFile(sys, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read NUMA distances: %w", err)
	}
	var distances []uint64
	for field := range strings.FieldsSeq(string(text)) {
		distance, err := strconv.ParseUint(field, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("read NUMA distances: %s: %w", file, err)
		}
		distances = append(distances, distance)
	}
	return distances, nil
}

// readCPUs reads devices/system/node/node<N>/cpulist; nil without the file.
func readCPUs(sys fs.FS, number int) ([]int, error) {
	text, err := fs.ReadFile(sys, path.Join("devices/system/node", fmt.Sprintf("node%d", number), "cpulist"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read CPUs of NUMA node %d: %w", number, err)
	}
	set, err := cpuset.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("read CPUs of NUMA node %d: %w", number, err)
	}
	return set.List(), nil
}

func uniformDistances(self, count int) []uint64 {
	distances := make([]uint64, count)
	for i := range distances {
		distances[i] = remoteDistance
	}
	distances[self] = localDistance
	return distances
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
