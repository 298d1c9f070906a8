// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement/solver"
)

// newPlaces builds the tree of places of a request.
func newPlaces(t *topology.Tree, gpus, vfs *side) *places {
	b := &treeBuilder{nodes: len(t.NUMANodes()), places: places{tree: t, sites: map[topology.Address]*site{}}}
	b.world = b.new(solver.World, nil)
	b.system = b.new(solver.System, b.world)
	for i := range gpus.devices {
		b.addGPU(gpus, i)
	}
	for i := range vfs.devices {
		b.addVF(vfs, i)
	}
	b.finish(vfs.count)
	return &b.places
}

// addGPU adds the i-th GPU to its card; a GPU that may not be chosen is only counted.
func (b *treeBuilder) addGPU(gpus *side, i int) {
	resource, t := gpus.parts[i].resource, gpus.parts[i].tally
	address := gpus.devices[i].Address
	function := b.function(address)
	s := b.site(function.Slot())
	if s.card == nil {
		s.card = b.new(solver.Card, b.group(b.site(function), address))
	}
	if t.Most > 0 {
		see(&s.card.Place, address)
		s.card.Degraded = s.card.Degraded || gpus.devices[i].Degraded || b.degraded(function, true)
		s.card.Pools = b.pooled(s.card.Pools, gpus, i, resource, t)
	}
	s.card.GPUs.Add(t)
}

// degraded reports whether the PCIe link of a GPU or PF is degraded.
func (b *treeBuilder) degraded(function topology.Address, gpu bool) bool {
	d, ok := b.tree.Device(function)
	return ok && d.PCIe.DegradedOf(gpu)
}

// pooled adds the i-th device to the pool of its resource.
func (b *treeBuilder) pooled(pools []solver.Pool, of *side, i, resource int, t solver.Tally) []solver.Pool {
	k := slices.IndexFunc(pools, func(p solver.Pool) bool { return p.Resource == resource })
	if k < 0 {
		k = len(pools)
		pools = append(pools, solver.Pool{Resource: resource, Number: len(b.devices)})
		b.devices = append(b.devices, nil)
	}
	l := &pools[k]
	l.Held += t.Held
	l.Most++
	b.devices[l.Number] = append(b.devices[l.Number], of.devices[i])
	return pools
}

// addVF adds the i-th VF to its PF; a VF that may not be chosen is only counted, and a VF of another
// container also adds to the PF's load.
func (b *treeBuilder) addVF(vfs *side, i int) {
	resource, t := vfs.parts[i].resource, vfs.parts[i].tally
	address := vfs.devices[i].Address
	function := b.function(address)
	s := b.site(function)
	group := b.group(s, address)
	if t.Most > 0 {
		see(&group.Place, address)
	}
	group.VFs.Add(t)
	if t.Most == 0 {
		if s.pf != nil { // a VF of the PF that may be chosen came before
			s.pf.Load += t.Taken
		}
		return
	}
	if s.pf == nil {
		slot := b.site(function.Slot())
		if slot.nic == nil {
			slot.nic = &solver.NIC{}
		}
		s.pf = &port{PF: solver.PF{NIC: slot.nic}, address: function, group: s.group}
		s.pf.Degraded = b.degraded(function, false)
		b.pfs = append(b.pfs, s.pf)
	}
	s.pf.Degraded = s.pf.Degraded || vfs.devices[i].Degraded
	s.pf.Held += t.Held
	s.pf.Most++
	s.pf.Pools = b.pooled(s.pf.Pools, vfs, i, resource, t)
}

// finish attaches the root complexes to their NUMA nodes and sorts the tree.
func (b *treeBuilder) finish(vfs int) {
	for i := range b.complexes {
		c := &b.complexes[i]
		c.place.above = b.node(c.numa)
	}
	for _, n := range b.all[1:] {
		n.above.Children = append(n.above.Children, &n.Place)
	}
	slices.SortFunc(b.pfs, func(x, y *port) int { return x.address.Compare(y.address) })
	for _, f := range b.pfs {
		f.group.PFs = append(f.group.PFs, &f.PF)
	}
	b.root = b.settle(&b.world.Place, vfs)
	if b.root != nil {
		b.root.Parent = nil
	}
}

// settle counts the devices below a place, removes places without devices to choose from, sorts the rest by
// lowest address, and replaces a place that has a single child by that child. It returns the resulting place,
// or nil.
func (b *treeBuilder) settle(n *solver.Place, vfs int) *solver.Place {
	kept := n.Children[:0]
	for _, child := range n.Children {
		if settled := b.settle(child, vfs); settled != nil {
			see(n, settled.First)
			settled.Parent = n
			kept = append(kept, settled)
		}
		n.Content.Add(child.Content)
	}
	n.Children = kept
	if n.GPUs.Most+n.VFs.Most == 0 {
		return nil
	}
	slices.SortFunc(kept, func(x, y *solver.Place) int { return x.First.Compare(y.First) })
	switch n.Kind {
	case solver.Group:
		n.PlanFill(min(n.VFs.Most, vfs) - n.VFs.Held)
	case solver.Card, solver.Node:
	default:
		if len(kept) == 1 {
			return kept[0]
		}
	}
	return n
}
