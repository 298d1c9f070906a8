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
		content, _ := fs.ReadFile(sys, fmt.Sprintf("devices/system/node/node%d/distance", number))
		for word := range strings.FieldsSeq(string(content)) {
			if distance, err := strconv.Atoi(word); err == nil {
				node.Distances = append(node.Distances, distance)
			}
		}
		if len(node.Distances) != len(numbers) { // unknown, or of nodes that are offline too
			node.Distances = nil
		}
		nodes = append(nodes, node)
	}
	return nodes
}
