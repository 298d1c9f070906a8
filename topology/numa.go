// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"encoding/json"
	"strconv"
)

// NUMANode is a NUMA node number of the kernel, or unknown. The zero value is unknown, so that a fact that
// was never read cannot pass for node 0.
type NUMANode struct {
	number int
	known  bool
}

// Node is the NUMA node with this number; a negative number, which the kernel uses for "none", gives an
// unknown node.
func Node(number int) NUMANode { return NUMANode{number: max(number, 0), known: number >= 0} }

// Number returns the node's number, 0 or more, and whether it is known.
func (n NUMANode) Number() (number int, known bool) { return n.number, n.known }

// String prints the number, or -1 for unknown as sysfs does.
func (n NUMANode) String() string {
	if !n.known {
		return "-1"
	}
	return strconv.Itoa(n.number)
}

// ParseNUMANode reads what a file numa_node says, without the newline: a number, -1 for unknown.
func ParseNUMANode(text string) (NUMANode, error) {
	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return NUMANode{}, err
	}
	return Node(int(number)), nil
}

// Numbers returns the node's number, and none where it is unknown, which for the kubelet means "no
// preference": node -1 would make it refuse every pod under a strict policy.
func (n NUMANode) Numbers() []int {
	if !n.known {
		return nil
	}
	return []int{n.number}
}

// MarshalJSON writes the number, null for unknown; with omitzero an unknown node is left out.
func (n NUMANode) MarshalJSON() ([]byte, error) {
	if !n.known {
		return []byte("null"), nil
	}
	return json.Marshal(n.number)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *NUMANode) UnmarshalJSON(text []byte) error {
	var number *int
	if err := json.Unmarshal(text, &number); err != nil {
		return err
	}
	if *n = (NUMANode{}); number != nil {
		*n = Node(*number)
	}
	return nil
}
