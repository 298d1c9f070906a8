// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

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
