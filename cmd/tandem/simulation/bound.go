// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"math"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// bound computes the most pairs that any choice can make, even with knowledge of all arrivals and departures.
// As long as the kubelet admits containers to NUMA nodes by numbers alone, the admissions do not depend on
// the choices, and each node is a separate problem: bound enumerates all ways in which the node's containers
// can hold its devices. Two ways differ only in the containers that share a switch, so a node with few
// devices has few ways.
type bound struct {
	node    *world.Node
	domains []domain // by NUMA node
	pairs   int      // asked for
}

func newBound(n *world.Node) *bound {
	b := &bound{node: n, domains: make([]domain, len(n.NUMA))}
	for i := range b.domains {
		b.domains[i] = newDomain(n, i)
	}
	return b
}

// admit adds a container that got devices among the free ones on some NUMA nodes; a container on several
// nodes is added to each.
func (b *bound) admit(id int, c world.Container, s *world.State, mask hints.Mask, counts bool) {
	value := 0
	if counts && c.Request.Both() {
		value = 1
		b.pairs += c.Request.Pairs()
	}
	settled := mask.Count() == 1
	if !settled {
		settled = c.Request.GPUs == s.FreeAt(world.GPU, mask) && c.Request.VFs == s.FreeAt(world.VF, mask) &&
			mask != 0
	}
	for i := range b.domains {
		var on [2]int
		for _, kind := range world.Kinds {
			for _, dev := range c.Devices[kind] {
				if b.node.Devices[kind][dev].NUMA == i {
					on[kind]++
				}
			}
		}
		if on[world.GPU]+on[world.VF] > 0 {
			d := &b.domains[i]
			d.known = d.known && settled
			d.admit(id, on[world.GPU], on[world.VF], value)
		}
	}
}

// release takes a container away.
func (b *bound) release(id int) {
	for i := range b.domains {
		b.domains[i].release(id)
	}
}

// share returns the bound on the PIX share in percent, or NaN if unknown.
func (b *bound) share() float64 {
	most := 0
	for i := range b.domains {
		best := 0
		for _, pairs := range b.domains[i].ways {
			best = max(best, pairs)
		}
		most += best
		if !b.domains[i].known {
			return math.NaN()
		}
	}
	return percent(most, b.pairs)
}

func (d *domain) admit(id, gpus, vfs, value int) {
	if !d.known {
		return
	}
	holder := byte(slices.Index(d.used[:], false))
	d.used[holder], d.holders[id] = true, holder
	clear(d.next)
	for h, pairs := range d.ways {
		d.place(h, 0, taking{gpus, vfs}, holder, 0, func(h holding, made int) { d.keep(h, pairs+value*made) })
	}
	d.ways, d.next = d.next, d.ways
	d.known = len(d.ways) > 0 && len(d.ways) <= mostWays
}

// keep records the most pairs that lead to a holding.
func (d *domain) keep(h holding, pairs int) {
	for _, c := range d.switches {
		slices.Sort(c.gpusOf(&h))
		slices.Sort(c.vfsOf(&h))
	}
	for i := 1; i < len(d.switches); i++ {
		for k := i; k > 0 && d.inverted(&h, d.switches[k-1], d.switches[k]); k-- {
			for n := range d.switches[k].gpus + d.switches[k].vfs {
				a, b := d.switches[k-1].from+n, d.switches[k].from+n
				h[a], h[b] = h[b], h[a]
			}
		}
	}
	if best, ok := d.next[h]; !ok || pairs > best {
		d.next[h] = pairs
	}
}

// inverted reports whether two switches of the same size are not in order.
func (d *domain) inverted(h *holding, a, b capacity) bool {
	size := a.gpus + a.vfs
	return a.gpus == b.gpus && a.vfs == b.vfs && slices.Compare(h[a.from:a.from+size], h[b.from:b.from+size]) > 0
}

func (d *domain) release(id int) {
	holder, ok := d.holders[id]
	if !ok || !d.known {
		return
	}
	delete(d.holders, id)
	d.used[holder] = false
	clear(d.next)
	for h, pairs := range d.ways {
		for i, by := range h {
			if by == holder {
				h[i] = 0
			}
		}
		d.keep(h, pairs)
	}
	d.ways, d.next = d.next, d.ways
}
