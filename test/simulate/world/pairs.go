// SPDX-License-Identifier: Apache-2.0

package world

// Pairs returns the number of a container's GPUs that can have a VF of their own on their switch, of those
// with a PF of their own, and of those with a VF of their own on their NUMA node.
func (n *Node) Pairs(c Container) (pix, own, sameNode int) {
	type place struct{ gpus, vfs, pfs int }
	switches, numa := make([]place, n.Switches+1), make([]place, len(n.NUMA)+1) // the first for -1, unknown
	seen := map[int]bool{}
	for _, i := range c.Devices[GPU] {
		d := n.Devices[GPU][i]
		switches[d.Switch+1].gpus++
		numa[d.NUMA+1].gpus++
	}
	for _, i := range c.Devices[VF] {
		d := n.Devices[VF][i]
		switches[d.Switch+1].vfs++
		numa[d.NUMA+1].vfs++
		if !seen[d.PF] {
			seen[d.PF] = true
			switches[d.Switch+1].pfs++
		}
	}
	for _, p := range switches[1:] {
		pix += min(p.gpus, p.vfs)
		own += min(p.gpus, p.pfs)
	}
	for _, p := range numa {
		sameNode += min(p.gpus, p.vfs)
	}
	return pix, own, sameNode
}
