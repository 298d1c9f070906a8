// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement/solver"
)

// places builds the tree of places and keeps the devices of each place.
type places struct {
	tree      *topology.Tree
	nodes     int           // number of NUMA nodes of the machine
	root      *solver.Place // set when the tree is complete; nil if no device may be chosen
	world     *spot
	system    *spot
	numa      []numaNode
	complexes []rootComplex
	sites     map[topology.Address]*site
	pfs       []*port
	all       []*spot    // in the order of creation, including places without devices to choose from
	devices   [][]Device // of every pool, by its number, held devices first
	above     []topology.Address

	spotPool  arena[spot]
	poolPool  arena[solver.Pool]
	sitePool  arena[site]
	portPool  arena[port]
	fills     arena[int32]
	fillCosts arena[solver.FillCost]
}

// spot is a place under construction, which has only a reference to its parent.
type spot struct {
	solver.Place
	number int // in the order of creation
	above  *spot
	direct *spot // of a bridge or root complex: the group directly below it
	below  int   // number of children, before they are listed
}

// port is a PF with VFs that may be chosen.
type port struct {
	solver.PF
	address topology.Address
	group   *spot
}

// site caches the places of a PCI function.
type site struct {
	bridge *spot // the function as a bridge
	group  *spot // the group of the function
	card   *spot // the card in the slot, stored with the slot's first function
	pf     *port
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

// arena allocates many small values at once.
type arena[T any] struct{ free []T }

func (a *arena[T]) take(n int) []T {
	const chunk = 64
	if n > len(a.free) {
		a.free = make([]T, max(n, chunk))
	}
	taken := a.free[:n:n]
	a.free = a.free[n:]
	return taken
}

func newPlaces(t *topology.Tree, devices int) *places {
	usual := min(devices, 64) // room for more devices is allocated on demand
	p := &places{
		tree:  t,
		nodes: len(t.NUMANodes()),
		sites: make(map[topology.Address]*site, usual),
		all:   make([]*spot, 0, usual),
		pfs:   make([]*port, 0, usual/4),

		devices: make([][]Device, 0, usual/4),
	}
	p.world = p.new(solver.World, nil)
	p.system = p.new(solver.System, p.world)
	return p
}

// new creates a place below another place.
func (p *places) new(k solver.Kind, above *spot) *spot {
	n := &p.spotPool.take(1)[0]
	n.Place, n.number, n.above = solver.NewPlace(k), len(p.all), above
	p.all = append(p.all, n)
	return n
}

// see records the address of a device that may be chosen at a place. It must be called before the device is
// counted.
func see(n *solver.Place, a topology.Address) {
	if n.GPUs.Most+n.VFs.Most == 0 || a.Compare(n.First) < 0 {
		n.First = a
	}
}

// function returns the PCI function that is plugged in: the PF of a VF, otherwise the device itself.
func (p *places) function(a topology.Address) topology.Address {
	if d, ok := p.tree.Device(a); ok {
		return d.Function()
	}
	return a
}

func (p *places) site(a topology.Address) *site {
	s := p.sites[a]
	if s == nil {
		s = &p.sitePool.take(1)[0]
		p.sites[a] = s
	}
	return s
}

// links returns the direct links between cards with GPUs that may be chosen.
func (p *places) links(links []topology.Link) []solver.Link {
	found := make([]solver.Link, 0, len(links))
	for _, l := range links {
		a, b := p.cardOf(l.A), p.cardOf(l.B)
		if a != nil && b != nil && a != b {
			found = append(found, solver.NewLink(&a.Place, &b.Place, l.Hops, l.Count))
		}
	}
	return found
}

// cardOf returns the card of a GPU that may be chosen, nil for any other address.
func (p *places) cardOf(a topology.Address) *spot {
	if s := p.sites[p.function(a).Slot()]; s != nil && s.card != nil && s.card.GPUs.Most > 0 {
		return s.card
	}
	return nil
}
