// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// places is the tree of places of a request, with the devices of each place.
type places struct {
	tree    *topology.Tree
	root    *place // nil if no device may be chosen
	sites   map[topology.Address]*site
	pfs     []*port
	all     []*spot    // in the order of creation, including places without devices to choose from
	devices [][]Device // of every pool, by its number, held devices first
}

// spot is a place under construction, which has only a reference to its parent.
type spot struct {
	place
	above  *spot
	direct *spot // of a bridge or root complex: the group directly below it
}

// port is a PF with VFs that may be chosen.
type port struct {
	pf
	address topology.Address
	group   *spot
}

// site caches the places of a PCI function.
type site struct {
	bridge *spot // the function as a bridge
	group  *spot // the group of the function
	card   *spot // the card in the slot, stored with the slot's first function
	nic    *nic  // likewise
	pf     *port
}

// functionOf returns the PCI function that is plugged in: the PF of a VF, otherwise the device itself.
func (p *places) functionOf(a topology.Address) topology.Address {
	if d, ok := p.tree.Device(a); ok {
		return d.Function()
	}
	return a
}

// directLinks returns the direct links between cards with GPUs that may be chosen.
func (p *places) directLinks(links []topology.Link) []link {
	found := make([]link, 0, len(links))
	for _, l := range links {
		a, b := p.cardOf(l.A), p.cardOf(l.B)
		if a != nil && b != nil && a != b {
			found = append(found, newLink(&a.place, &b.place, l.Hops, l.Count))
		}
	}
	return found
}

// cardOf returns the card of a GPU that may be chosen, nil for any other address.
func (p *places) cardOf(a topology.Address) *spot {
	if s := p.sites[p.functionOf(a).Slot()]; s != nil && s.card != nil && s.card.GPUs.Most > 0 {
		return s.card
	}
	return nil
}

// takenGPUs appends the marked GPUs below a place.
func (p *places) takenGPUs(n *place, taken []Device) []Device {
	for _, child := range n.Children {
		taken = p.takenGPUs(child, taken)
	}
	return p.appendTaken(taken, n.Pools)
}

// takenVFs appends the marked VFs below a place.
func (p *places) takenVFs(n *place, taken []Device) []Device {
	for _, child := range n.Children {
		taken = p.takenVFs(child, taken)
	}
	for _, f := range n.PFs {
		taken = p.appendTaken(taken, f.Pools)
	}
	return taken
}

func (p *places) appendTaken(taken []Device, pools []pool) []Device {
	for _, l := range pools {
		taken = append(taken, p.devices[l.Number][:l.Taken]...)
	}
	return taken
}

// pairsLeft returns the number of same-switch pairs that remain possible after the marked devices are taken.
func (p *places) pairsLeft() int {
	sum := 0
	for _, g := range p.all {
		if g.Kind == kindGroup && g.Level.Direct() {
			sum += min(g.GPUs.Free()-g.Chosen.GPUs+g.GPUs.Held, g.VFs.Free()-g.Chosen.VFs+g.VFs.Held)
		}
	}
	return sum
}

// pfsTaken returns the number of PFs with taken VFs.
func (p *places) pfsTaken() int {
	n := 0
	for _, f := range p.pfs {
		if f.Taken > 0 {
			n++
		}
	}
	return n
}

// degradedFunctions returns the degraded functions with devices that may be chosen: those of which further
// devices are marked, and those without any. Both ascend.
func (p *places) degradedFunctions() (taken, passed []topology.Address) {
	add := func(f topology.Address, of, held, most int) {
		switch {
		case of > held:
			taken = append(taken, f)
		case most > held:
			passed = append(passed, f)
		}
	}
	for _, f := range p.pfs {
		if f.Degraded {
			add(f.address, f.Taken, f.Held, f.Most)
		}
	}
	for _, card := range p.all {
		if card.Kind == kindCard && card.Degraded {
			add(card.First, card.Chosen.GPUs, card.GPUs.Held, card.GPUs.Most)
		}
	}
	slices.SortFunc(taken, topology.Address.Compare)
	slices.SortFunc(passed, topology.Address.Compare)
	return taken, passed
}

// switchesTaken returns the number of switches with taken GPUs.
func (p *places) switchesTaken() int {
	n := 0
	for _, g := range p.all {
		if g.Kind == kindGroup && g.Level.Direct() && g.Chosen.GPUs > 0 {
			n++
		}
	}
	return n
}

// treeBuilder builds the tree of places.
type treeBuilder struct {
	places
	nodes     int // number of NUMA nodes of the machine
	world     *spot
	system    *spot
	numa      []numaNode
	complexes []rootComplex
}

// numaNode is the NUMA node of a root complex.
type numaNode struct {
	number int
	place  *spot
}

// rootComplex is a root complex whose NUMA node is final after all devices have been added.
type rootComplex struct {
	name  string
	place *spot
	numa  topology.NUMANode
}

// newSpot creates a place below another place.
func (b *treeBuilder) newSpot(k kind, above *spot) *spot {
	n := &spot{place: newPlace(k), above: above}
	b.all = append(b.all, n)
	return n
}

func (b *treeBuilder) siteOf(a topology.Address) *site {
	s := b.sites[a]
	if s == nil {
		s = &site{}
		b.sites[a] = s
	}
	return s
}

// groupOf returns the group of a device at a site.
func (b *treeBuilder) groupOf(s *site, a topology.Address) *spot {
	if s.group == nil {
		s.group = b.locateGroup(a)
	}
	return s.group
}

func (b *treeBuilder) locateGroup(a topology.Address) *spot {
	d, ok := b.tree.Device(a)
	if !ok { // not in the tree
		g := b.newSpot(kindGroup, b.world)
		g.Level = topology.UNK
		return g
	}
	above := b.complexOf(d)
	bridges, redirected := b.tree.SharedBridges(a), b.tree.Redirected(a)
	for i, address := range bridges {
		s := b.siteOf(address)
		if s.bridge == nil {
			s.bridge = b.newSpot(kindBridge, above)
			s.bridge.Depth = i + 1
		}
		if i < redirected {
			s.bridge.Redirect = 1
		}
		above = s.bridge
	}
	if above.direct == nil {
		above.direct = b.newSpot(kindGroup, above)
		above.direct.Depth = above.Depth
		if above.Kind == kindComplex { // no switch: the devices meet in the root or C2C complex
			above.direct.Level = above.Level
		}
	}
	if redirected > 0 && redirected == len(bridges) {
		above.direct.Redirect = 1
	}
	return above.direct
}

// complexOf returns the root complex of a device, or its C2C complex, which is often that of the previous
// device. The NUMA node of a root complex is the lowest known one of its devices' places.
func (b *treeBuilder) complexOf(d *topology.Device) *spot {
	i, name := len(b.complexes)-1, b.tree.Top(d.Address)
	for i >= 0 && b.complexes[i].name != name {
		i--
	}
	if i < 0 {
		i = len(b.complexes)
		b.complexes = append(b.complexes, rootComplex{name: name, place: b.newSpot(kindComplex, nil)})
		b.complexes[i].place.Level = topology.LevelBelow(name)
	}
	b.complexes[i].numa = b.complexes[i].numa.Lower(b.tree.NUMA(d.Address))
	return b.complexes[i].place
}

// nodePlace returns the place of a NUMA node; an unknown node is directly below the world.
func (b *treeBuilder) nodePlace(n topology.NUMANode) *spot {
	number, known := n.Number()
	if b.nodes <= 1 {
		number, known = 0, true
	}
	if !known {
		return b.world
	}
	for _, node := range b.numa {
		if node.number == number {
			return node.place
		}
	}
	b.numa = append(b.numa, numaNode{number, b.newSpot(kindNode, b.system)})
	return b.numa[len(b.numa)-1].place
}

// recordAddress records the address of a device that may be chosen at a place. It must be called before the
// device is counted.
func recordAddress(n *place, a topology.Address) {
	if n.GPUs.Most+n.VFs.Most == 0 || a.Compare(n.First) < 0 {
		n.First = a
	}
}

// newPlaces builds the tree of places of a request.
func newPlaces(t *topology.Tree, gpus, vfs *side) *places {
	b := &treeBuilder{nodes: len(t.NUMANodes()), places: places{tree: t, sites: map[topology.Address]*site{}}}
	b.world = b.newSpot(kindWorld, nil)
	b.system = b.newSpot(kindSystem, b.world)
	for i := range gpus.devices {
		b.addGPU(gpus, i)
	}
	for i := range vfs.devices {
		b.addVF(vfs, i)
	}
	b.finishTree(vfs.count)
	return &b.places
}

// addGPU adds the i-th GPU to its card; a GPU that may not be chosen is only counted.
func (b *treeBuilder) addGPU(gpus *side, i int) {
	resource, t := gpus.parts[i].resource, gpus.parts[i].tally
	address := gpus.devices[i].Address
	function := b.functionOf(address)
	s := b.siteOf(function.Slot())
	if s.card == nil {
		s.card = b.newSpot(kindCard, b.groupOf(b.siteOf(function), address))
	}
	if t.Most > 0 {
		recordAddress(&s.card.place, address)
		s.card.Degraded = s.card.Degraded || gpus.devices[i].Degraded || b.isDegraded(function, true)
		s.card.Pools = b.toPool(s.card.Pools, gpus, i, resource, t)
	}
	s.card.GPUs.Add(t)
}

// isDegraded reports whether the PCIe link of a GPU or PF is degraded.
func (b *treeBuilder) isDegraded(function topology.Address, gpu bool) bool {
	d, ok := b.tree.Device(function)
	return ok && d.PCIe.DegradedOf(gpu)
}

// toPool adds the i-th device to the pool of its resource.
func (b *treeBuilder) toPool(pools []pool, of *side, i, resource int, t tally) []pool {
	k := slices.IndexFunc(pools, func(p pool) bool { return p.Resource == resource })
	if k < 0 {
		k = len(pools)
		pools = append(pools, pool{Resource: resource, Number: len(b.devices)})
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
	function := b.functionOf(address)
	s := b.siteOf(function)
	group := b.groupOf(s, address)
	if t.Most > 0 {
		recordAddress(&group.place, address)
	}
	group.VFs.Add(t)
	if t.Most == 0 {
		if s.pf != nil { // a VF of the PF that may be chosen came before
			s.pf.Load += t.Taken
		}
		return
	}
	if s.pf == nil {
		slot := b.siteOf(function.Slot())
		if slot.nic == nil {
			slot.nic = &nic{}
		}
		s.pf = &port{pf: pf{NIC: slot.nic}, address: function, group: s.group}
		s.pf.Degraded = b.isDegraded(function, false)
		b.pfs = append(b.pfs, s.pf)
	}
	s.pf.Degraded = s.pf.Degraded || vfs.devices[i].Degraded
	s.pf.Held += t.Held
	s.pf.Most++
	s.pf.Pools = b.toPool(s.pf.Pools, vfs, i, resource, t)
}

// finishTree attaches the root complexes to their NUMA nodes and sorts the tree.
func (b *treeBuilder) finishTree(vfs int) {
	for i := range b.complexes {
		c := &b.complexes[i]
		c.place.above = b.nodePlace(c.numa)
	}
	for _, n := range b.all[1:] {
		n.above.Children = append(n.above.Children, &n.place)
	}
	slices.SortFunc(b.pfs, func(x, y *port) int { return x.address.Compare(y.address) })
	for _, f := range b.pfs {
		f.group.PFs = append(f.group.PFs, &f.pf)
	}
	b.root = b.settlePlace(&b.world.place, vfs)
	if b.root != nil {
		b.root.Parent = nil
	}
}

// settlePlace counts the devices below a place, removes places without devices to choose from, sorts the rest
// by lowest address, and replaces a place that has a single child by that child. It returns the resulting
// place, or nil.
func (b *treeBuilder) settlePlace(n *place, vfs int) *place {
	kept := n.Children[:0]
	for _, child := range n.Children {
		if settled := b.settlePlace(child, vfs); settled != nil {
			recordAddress(n, settled.First)
			settled.Parent = n
			kept = append(kept, settled)
		}
		n.content.Add(child.content)
	}
	n.Children = kept
	if n.GPUs.Most+n.VFs.Most == 0 {
		return nil
	}
	slices.SortFunc(kept, func(x, y *place) int { return x.First.Compare(y.First) })
	switch n.Kind {
	case kindGroup:
		n.PlanFill(min(n.VFs.Most, vfs) - n.VFs.Held)
	case kindCard, kindNode:
	default:
		if len(kept) == 1 {
			return kept[0]
		}
	}
	return n
}
