// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// HintedNodes returns the numbers of the NUMA nodes over which hints of CPUs and devices range, ascending:
// those with CPUs. The others, for example the memory of GPUs on Grace, have neither CPUs nor devices.
// Without lists of CPUs, all nodes count.
func HintedNodes(sys fs.FS, tree *topology.Tree) []int {
	if nodes := topology.NodesWithCPUs(topology.CPUs(sys)); len(nodes) > 0 {
		return nodes
	}
	return tree.NUMANodes()
}

// ReadNUMANodes reads the NUMA nodes of a machine, by their numbers
// (Documentation/ABI/stable/sysfs-devices-node).
func ReadNUMANodes(sys fs.FS, numbers []int) []NUMANode {
	var nodes []NUMANode
	for _, number := range slices.Sorted(slices.Values(numbers)) {
		node := NUMANode{Number: number}
		if distances := readDistances(sys, number); len(distances) == len(numbers) { // else unknown
			node.Distances = distances
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// readDistances reads the distances of a node to all nodes, those that are offline too; nil if unknown.
func readDistances(sys fs.FS, number int) (distances []int) {
	content, err := fs.ReadFile(sys, fmt.Sprintf("devices/system/node/node%d/distance", number))
	if err != nil {
		return nil
	}
	for word := range strings.FieldsSeq(string(content)) {
		distance, err := strconv.Atoi(word)
		if err != nil {
			return nil
		}
		distances = append(distances, distance)
	}
	return distances
}
