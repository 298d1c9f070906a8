// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement/solver"
)

// treeBuilder builds the tree of places.
type treeBuilder struct {
	places
	nodes     int // number of NUMA nodes of the machine
	world     *spot
	system    *spot
	numa      []numaNode
	complexes []rootComplex
	above     []topology.Address // scratch space for the bridges above a device

	spotPool  arena[spot]
	poolPool  arena[solver.Pool]
	sitePool  arena[site]
	portPool  arena[port]
	nicPool   arena[solver.NIC]
	fillCosts arena[solver.FillCost]
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

// new creates a place below another place.
func (b *treeBuilder) new(k solver.Kind, above *spot) *spot {
	n := &b.spotPool.take(1)[0]
	n.Place, n.number, n.above = solver.NewPlace(k), len(b.all), above
	b.all = append(b.all, n)
	return n
}

func (b *treeBuilder) site(a topology.Address) *site {
	s := b.sites[a]
	if s == nil {
		s = &b.sitePool.take(1)[0]
		b.sites[a] = s
	}
	return s
}

// group returns the group of a device at a site.
func (b *treeBuilder) group(s *site, a topology.Address) *spot {
	if s.group == nil {
		s.group = b.locate(a)
	}
	return s.group
}

func (b *treeBuilder) locate(a topology.Address) *spot {
	d, ok := b.tree.Device(a)
	if !ok { // not in the tree
		g := b.new(solver.Group, b.world)
		g.Level = topology.UNK
		return g
	}
	above := b.complex(d)
	b.above = b.tree.AppendSharedBridges(b.above[:0], a)
	redirected := b.tree.Redirected(a)
	for i, address := range b.above {
		s := b.site(address)
		if s.bridge == nil {
			s.bridge = b.new(solver.Bridge, above)
			s.bridge.Depth = i + 1
		}
		if i < redirected {
			s.bridge.Redirect = 1
		}
		above = s.bridge
	}
	if above.direct == nil {
		above.direct = b.new(solver.Group, above)
		above.direct.Depth = above.Depth
		if above.Kind == solver.Complex { // no switch: the devices meet in the root or C2C complex
			above.direct.Level = above.Level
		}
	}
	if redirected > 0 && redirected == len(b.above) {
		above.direct.Redirect = 1
	}
	return above.direct
}

// complex returns the root complex of a device, or its C2C complex, which is often that of the previous
// device. The NUMA node of a root complex is the lowest known one of its devices' places.
func (b *treeBuilder) complex(d *topology.Device) *spot {
	i, name := len(b.complexes)-1, b.tree.Top(d.Address)
	for i >= 0 && b.complexes[i].name != name {
		i--
	}
	if i < 0 {
		i = len(b.complexes)
		b.complexes = append(b.complexes, rootComplex{name: name, place: b.new(solver.Complex, nil)})
		b.complexes[i].place.Level = topology.LevelBelow(name)
	}
	b.complexes[i].numa = b.complexes[i].numa.Lower(b.tree.NUMA(d.Address))
	return b.complexes[i].place
}

// node returns the place of a NUMA node; an unknown node is directly below the world.
func (b *treeBuilder) node(n topology.NUMANode) *spot {
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
	b.numa = append(b.numa, numaNode{number, b.new(solver.Node, b.system)})
	return b.numa[len(b.numa)-1].place
}

// see records the address of a device that may be chosen at a place. It must be called before the device is
// counted.
func see(n *solver.Place, a topology.Address) {
	if n.GPUs.Most+n.VFs.Most == 0 || a.Compare(n.First) < 0 {
		n.First = a
	}
}
