// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// oracle finds the best choice by looking at every one. It shares no code with the package: distances come
// from the tree, pairs from trying all assignments, and everything is counted on lists of devices.
type oracle struct {
	tree  *topology.Tree
	r     Request
	steps map[[2]topology.Address]step // known so far
}

func newOracle(tree *topology.Tree, r Request) *oracle {
	return &oracle{tree, r, map[[2]topology.Address]step{}}
}

// verdict is what a choice is worth, the objective in the words of doc.go; less is better.
type verdict struct {
	levels  [topology.Levels]int
	detour  int // pairs that a switch sends up to the host bridge
	bridges int
	ill     int // degraded devices taken
	left    int // same-switch pairs that can still be made
	later   int // what is left for when other containers are gone
	links   int
	pcie    int
	shared  int
	cards   int    // pairs of VFs of one NIC
	whole   [3]int // squares of the free GPUs by card, switch and NUMA node
	load    int
	crowded int // squares of the free VFs by switch
}

func (a verdict) compare(b verdict) int {
	for i := range a.levels {
		if c := cmp.Compare(b.levels[i], a.levels[i]); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(a.detour, b.detour), cmp.Compare(a.bridges, b.bridges),
		cmp.Compare(a.ill, b.ill),
		cmp.Compare(b.left, a.left), cmp.Compare(b.later, a.later), cmp.Compare(a.links, b.links),
		cmp.Compare(a.pcie, b.pcie), cmp.Compare(a.shared, b.shared), cmp.Compare(a.cards, b.cards),
		slices.Compare(b.whole[:], a.whole[:]),
		cmp.Compare(a.load, b.load), cmp.Compare(a.crowded, b.crowded))
}

// pairsOnly compares the first criterion alone.
func (a verdict) pairsOnly(b verdict) int {
	return verdict{levels: a.levels, detour: a.detour, bridges: a.bridges}.compare(verdict{
		levels: b.levels, detour: b.detour, bridges: b.bridges,
	})
}

// judge values a choice with its pairs.
func (o *oracle) judge(gpus, vfs []Device, pairs []Pair) verdict {
	v := o.judgeSets(gpus, vfs)
	for _, p := range pairs {
		s := o.distance(p.GPU, p.VF)
		v.levels[s.level]++
		v.detour += s.detour
		v.bridges += s.bridges
	}
	return v
}

// step is what a pair adds to a verdict.
type step struct{ level, detour, bridges int }

// distance is the tree's, but beyond telling every device counts the bridges above it.
func (o *oracle) distance(a, b Device) step {
	pair := [2]topology.Address{a.Address, b.Address}
	if s, known := o.steps[pair]; known {
		return s
	}
	d := o.tree.Distance(a.Address, b.Address)
	if d.Level == topology.UNK {
		d.Bridges = len(o.tree.SharedBridges(a.Address)) + len(o.tree.SharedBridges(b.Address))
	}
	s := step{level: int(d.Level), bridges: d.Bridges}
	if d.Level <= topology.PXB && o.redirects(a, b, d.Level) { // no switch takes part in C2C
		s.detour = 1
	}
	o.steps[pair] = s
	return s
}

// redirects tells whether the switch where two devices meet has a port on it, or further below, that
// redirects: one above a device of the request that hangs on the same switch or, where they meet at a bridge
// further up, anywhere below that bridge.
func (o *oracle) redirects(a, b Device, level topology.Level) bool {
	above := o.tree.SharedBridges(b.Address)
	var meet topology.Address
	for _, bridge := range o.tree.SharedBridges(a.Address) {
		if slices.Contains(above, bridge) {
			meet = bridge
		}
	}
	gpus, vfs := allOf(o.r.GPUs, o.r.Spare.GPUs, o.r.Taken.GPUs), allOf(o.r.VFs, o.r.Spare.VFs, o.r.Taken.VFs)
	return slices.ContainsFunc(slices.Concat(gpus, vfs), func(d Device) bool {
		shared := o.tree.SharedBridges(d.Address)
		at := slices.Index(shared, meet)
		if at < 0 || level == topology.PIX && at != len(shared)-1 {
			return false
		}
		return at < o.tree.Redirected(d.Address) // package topology's own tests are about the ports
	})
}

func (o *oracle) judgeSets(gpus, vfs []Device) verdict {
	var v verdict
	perPF, perNIC := map[topology.Address]int{}, map[string]int{}
	for _, d := range vfs {
		pf := o.function(d)
		v.shared += perPF[pf]
		perPF[pf]++
		_, group, _ := o.placesOf(d)
		nic := group + pf.Slot().String()
		v.cards += perNIC[nic]
		perNIC[nic]++
		for _, other := range o.r.Taken.VFs {
			if o.function(other) == pf {
				v.load++
			}
		}
		if f, ok := o.tree.Device(pf); ok && f.PCIe.Degraded() || o.degraded(d) {
			v.ill++
		}
	}
	for i := range gpus {
		if f, ok := o.tree.Device(gpus[i].Address); ok && f.PCIe.Width < f.PCIe.MaxWidth || o.degraded(gpus[i]) {
			v.ill++
		}
		for j := range i {
			links, pcie := o.near(gpus[i], gpus[j])
			v.links += links
			v.pcie += pcie
		}
	}
	o.left(gpus, vfs, &v)
	return v
}

// degraded tells whether a device of the same function that may be chosen is said to be degraded.
func (o *oracle) degraded(d Device) bool {
	of := func(e Device) bool { return e.Degraded && o.function(e) == o.function(d) }
	return slices.ContainsFunc(slices.Concat(allOf(o.r.GPUs, nil, nil), allOf(o.r.VFs, nil, nil)), of)
}

func (o *oracle) function(d Device) topology.Address {
	if f, ok := o.tree.Device(d.Address); ok {
		return f.Function()
	}
	return d.Address
}

// near is how far apart two GPUs are, by links and by PCI Express.
func (o *oracle) near(a, b Device) (links, pcie int) {
	if a.Address == b.Address {
		return 0, 0
	}
	links = 1000
	for _, l := range o.r.Links {
		if (l.A == a.Address && l.B == b.Address) || (l.B == a.Address && l.A == b.Address) {
			links = min(links, 100*l.Hops-l.Count)
		}
	}
	level := o.tree.Distance(a.Address, b.Address).Level
	pcie = 100 * int(level)
	if level == topology.PXB {
		x, y := o.tree.SharedBridges(a.Address), o.tree.SharedBridges(b.Address)
		for i := 0; i < len(x) && i < len(y) && x[i] == y[i]; i++ {
			pcie--
		}
	}
	return links, pcie
}

// left counts what stays free, by place.
func (o *oracle) left(gpus, vfs []Device, v *verdict) {
	type free struct{ gpus, vfs int }
	cards, switches, nodes := map[string]*free{}, map[string]*free{}, map[string]*free{}
	at := func(places map[string]*free, name string) *free {
		if places[name] == nil {
			places[name] = &free{}
		}
		return places[name]
	}
	count := func(all, taken []Device, add func(d Device, slot, group, node string)) {
		for _, d := range all {
			if !slices.Contains(taken, d) {
				slot, group, node := o.placesOf(d)
				add(d, slot, group, node)
			}
		}
	}
	count(slices.Concat(allFree(o.r.GPUs), o.r.Spare.GPUs), gpus, func(_ Device, slot, group, node string) {
		at(cards, slot).gpus++
		at(switches, group).gpus++
		at(nodes, node).gpus++
	})
	count(slices.Concat(allFree(o.r.VFs), o.r.Spare.VFs), vfs, func(_ Device, _, group, _ string) {
		at(switches, group).vfs++
	})
	delete(nodes, "")
	later, all := map[string]*free{}, map[string]*free{}
	everything := func(places map[string]*free, taken Devices) {
		count(allOf(o.r.GPUs, o.r.Spare.GPUs, o.r.Taken.GPUs), taken.GPUs, func(_ Device, _, group, _ string) {
			at(places, group).gpus++
		})
		count(allOf(o.r.VFs, o.r.Spare.VFs, o.r.Taken.VFs), taken.VFs, func(_ Device, _, group, _ string) {
			at(places, group).vfs++
		})
	}
	everything(later, Devices{gpus, vfs})
	everything(all, Devices{})
	for name, f := range all {
		v.later += min(at(later, name).gpus, at(later, name).vfs)
		v.later += min(at(switches, name).gpus, f.vfs) + min(at(switches, name).vfs, f.gpus)
	}
	for _, f := range cards {
		v.whole[0] += f.gpus * f.gpus
	}
	for _, f := range switches {
		v.left += min(f.gpus, f.vfs)
		v.whole[1] += f.gpus * f.gpus
		v.crowded += f.vfs * f.vfs
	}
	for _, f := range nodes {
		v.whole[2] += f.gpus * f.gpus
	}
}

// placesOf names card, switch and NUMA node of a device; the node is "" where it is not known.
func (o *oracle) placesOf(d Device) (slot, group, node string) {
	f := o.function(d)
	f.Function = 0
	slot = f.String()
	t, ok := o.tree.Device(d.Address)
	if !ok {
		return slot, d.Address.String(), ""
	}
	group = o.tree.Top(d.Address)
	if above := o.tree.SharedBridges(d.Address); len(above) > 0 {
		group = above[len(above)-1].String()
	}
	if len(o.tree.NUMANodes()) <= 1 {
		return slot, group, "0"
	}
	if n, known := o.tree.NUMA(t.Address).Number(); known {
		node = fmt.Sprint(n)
	}
	return slot, group, node
}
