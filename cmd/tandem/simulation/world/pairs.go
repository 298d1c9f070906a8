package world

// Pairs is how many GPUs of a container can have a VF of their own on their switch, how many of them on a PF
// of their own, and how many a VF of their own on their NUMA node.
func (n *Node) Pairs(c Container) (pix, own, sameNode int) {
	type place struct{ gpus, vfs, pfs int }
	switches, numa := map[int]*place{}, map[int]*place{}
	seen := map[int]bool{}
	at := func(places map[int]*place, i int) *place {
		if places[i] == nil {
			places[i] = &place{}
		}
		return places[i]
	}
	for _, i := range c.Devices[GPU] {
		at(switches, n.Devices[GPU][i].Switch).gpus++
		at(numa, n.Devices[GPU][i].NUMA).gpus++
	}
	for _, i := range c.Devices[VF] {
		d := n.Devices[VF][i]
		at(switches, d.Switch).vfs++
		at(numa, d.NUMA).vfs++
		if !seen[d.PF] {
			seen[d.PF] = true
			at(switches, d.Switch).pfs++
		}
	}
	for i, p := range switches {
		if i >= 0 {
			pix += min(p.gpus, p.vfs)
			own += min(p.gpus, p.pfs)
		}
	}
	for _, p := range numa {
		sameNode += min(p.gpus, p.vfs)
	}
	return pix, own, sameNode
}
