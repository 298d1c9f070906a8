// SPDX-License-Identifier: Apache-2.0

package topology

// Assemble makes a tree of functions whose places are known otherwise than from sysfs: each hangs at the
// place of its index, and there has to be one for each. The nodes are the machine's NUMA nodes, ascending;
// those that places name where there are none. The functions belong to the tree from then on.
func Assemble(functions []*Device, at []Place, nodes []int) *Tree {
	devices := make(map[Address]*Device, len(functions))
	for i, d := range functions {
		d.rootComplex, d.bridges, d.NUMA = at[i].RootComplex, at[i].Bridges, at[i].NUMA
		devices[d.Address] = d
	}
	return newTree(devices, nodes)
}

// PortClass is the class of a PCI-to-PCI bridge (PCI_CLASS_BRIDGE_PCI).
const PortClass Class = baseBridge<<16 | 4<<8
