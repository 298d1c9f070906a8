// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement/solver"
)

// places is the tree of places of a request, with the devices of each place.
type places struct {
	tree    *topology.Tree
	root    *solver.Place // nil if no device may be chosen
	sites   map[topology.Address]*site
	pfs     []*port
	all     []*spot      // in the order of creation, including places without devices to choose from
	devices [][]Device   // of every pool, by its number, held devices first
	numbers arena[int32] // room for lists of numbers
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
	bridge *spot       // the function as a bridge
	group  *spot       // the group of the function
	card   *spot       // the card in the slot, stored with the slot's first function
	nic    *solver.NIC // likewise
	pf     *port
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

// function returns the PCI function that is plugged in: the PF of a VF, otherwise the device itself.
func (p *places) function(a topology.Address) topology.Address {
	if d, ok := p.tree.Device(a); ok {
		return d.Function()
	}
	return a
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

// takenGPUs appends the marked GPUs below a place.
func (p *places) takenGPUs(n *solver.Place, taken []Device) []Device {
	for _, child := range n.Children {
		taken = p.takenGPUs(child, taken)
	}
	return p.appendTaken(taken, n.Pools)
}

// takenVFs appends the marked VFs below a place.
func (p *places) takenVFs(n *solver.Place, taken []Device) []Device {
	for _, child := range n.Children {
		taken = p.takenVFs(child, taken)
	}
	for _, f := range n.PFs {
		taken = p.appendTaken(taken, f.Pools)
	}
	return taken
}

func (p *places) appendTaken(taken []Device, pools []solver.Pool) []Device {
	for _, l := range pools {
		taken = append(taken, p.devices[l.Number][:l.Taken]...)
	}
	return taken
}

// left returns the number of same-switch pairs that remain possible after the marked devices are taken.
func (p *places) left() int {
	sum := 0
	for _, g := range p.all {
		if g.Kind == solver.Group && g.Level.Direct() {
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

// degraded returns the degraded functions with devices that may be chosen: those of which further devices are
// marked, and those without any. Both ascend.
func (p *places) degraded() (taken, passed []topology.Address) {
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
		if card.Kind == solver.Card && card.Degraded {
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
		if g.Kind == solver.Group && g.Level.Direct() && g.Chosen.GPUs > 0 {
			n++
		}
	}
	return n
}
