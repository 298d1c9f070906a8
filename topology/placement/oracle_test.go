package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// oracle finds the best choice by looking at every one. It shares no code with the package: distances come from the tree, pairs from
// trying all assignments, and everything is counted on lists of devices.
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
	left    int // same-switch pairs that can still be made
	later   int // what is left for when other containers are gone
	links   int
	pcie    int
	shared  int
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
	return cmp.Or(cmp.Compare(a.detour, b.detour), cmp.Compare(a.bridges, b.bridges), cmp.Compare(b.left, a.left), cmp.Compare(b.later, a.later), cmp.Compare(a.links, b.links), cmp.Compare(a.pcie, b.pcie),
		cmp.Compare(a.shared, b.shared), slices.Compare(b.whole[:], a.whole[:]), cmp.Compare(a.load, b.load), cmp.Compare(a.crowded, b.crowded))
}

// pairsOnly compares the first criterion alone.
func (a verdict) pairsOnly(b verdict) int {
	return verdict{levels: a.levels, detour: a.detour, bridges: a.bridges}.compare(verdict{levels: b.levels, detour: b.detour, bridges: b.bridges})
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
	if d.Level.SameSwitch() && o.redirects(a, b, d.Level) {
		s.detour = 1
	}
	o.steps[pair] = s
	return s
}

// redirects tells whether the switch where two devices meet has a port on it, or further below, that redirects: one above a device of the
// request that hangs on the same switch or, where they meet at a bridge further up, anywhere below that bridge.
func (o *oracle) redirects(a, b Device, level topology.Level) bool {
	above := o.tree.SharedBridges(b.Address)
	var meet topology.Address
	for _, bridge := range o.tree.SharedBridges(a.Address) {
		if slices.Contains(above, bridge) {
			meet = bridge
		}
	}
	return slices.ContainsFunc(slices.Concat(allOf(o.r.GPUs, o.r.Spare.GPUs, o.r.Taken.GPUs), allOf(o.r.VFs, o.r.Spare.VFs, o.r.Taken.VFs)), func(d Device) bool {
		shared := o.tree.SharedBridges(d.Address)
		if at := slices.Index(shared, meet); at < 0 || level == topology.PIX && at != len(shared)-1 {
			return false
		}
		f, _ := o.tree.Device(o.function(d))
		below := false
		for _, bridge := range f.Bridges() {
			if port, _ := o.tree.Device(bridge); below && port.ACS == topology.ACSRedirect {
				return true
			}
			below = below || bridge == meet
		}
		return false
	})
}

func (o *oracle) judgeSets(gpus, vfs []Device) verdict {
	var v verdict
	perPF := map[topology.Address]int{}
	for _, d := range vfs {
		pf := o.function(d)
		v.shared += perPF[pf]
		perPF[pf]++
		for _, other := range o.r.Taken.VFs {
			if o.function(other) == pf {
				v.load++
			}
		}
		if f, ok := o.tree.Device(pf); ok && f.PCIe.Degraded() {
			v.load++
		}
	}
	for i := range gpus {
		for j := range i {
			links, pcie := o.near(gpus[i], gpus[j])
			v.links += links
			v.pcie += pcie
		}
	}
	o.left(gpus, vfs, &v)
	return v
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
	count(slices.Concat(allFree(o.r.VFs), o.r.Spare.VFs), vfs, func(_ Device, _, group, _ string) { at(switches, group).vfs++ })
	delete(nodes, "")
	later, all := map[string]*free{}, map[string]*free{}
	everything := func(places map[string]*free, taken Devices) {
		count(allOf(o.r.GPUs, o.r.Spare.GPUs, o.r.Taken.GPUs), taken.GPUs, func(_ Device, _, group, _ string) { at(places, group).gpus++ })
		count(allOf(o.r.VFs, o.r.Spare.VFs, o.r.Taken.VFs), taken.VFs, func(_ Device, _, group, _ string) { at(places, group).vfs++ })
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
	group = t.RootComplex()
	if above := o.tree.SharedBridges(d.Address); len(above) > 0 {
		group = above[len(above)-1].String()
	}
	if len(o.tree.NUMANodes()) <= 1 {
		return slot, group, "0"
	}
	if n, known := t.NUMA.Number(); known {
		node = fmt.Sprint(n)
	}
	return slot, group, node
}

// best looks at every choice and returns the value of the best and, of those worth the same, the one with the lowest addresses.
func (o *oracle) best() (verdict, []Device, []Device) {
	var best verdict
	var bestGPUs, bestVFs []Device
	var bestPlace []int
	found := false
	gpuSets := o.sets(o.r.GPUs, func(d Device) topology.Address { return d.Address })
	vfSets := o.sets(o.r.VFs, o.function)
	for _, gpus := range gpuSets {
		for _, vfs := range vfSets {
			pairs := o.assign(gpus, vfs)
			if found && pairs.pairsOnly(best) > 0 {
				continue // the rest cannot make up for it
			}
			v := o.judgeSets(gpus, vfs)
			v.levels, v.detour, v.bridges = pairs.levels, pairs.detour, pairs.bridges
			c := -1
			if found {
				c = v.compare(best)
			}
			if c > 0 {
				continue
			}
			place := o.order(gpus, vfs)
			if c < 0 || slices.Compare(place, bestPlace) < 0 || slices.Equal(place, bestPlace) && lower(vfs, bestVFs) {
				best, bestGPUs, bestVFs, bestPlace, found = v, gpus, vfs, place, true
			}
		}
	}
	return best, bestGPUs, bestVFs
}

func lower(a, b []Device) bool { return slices.CompareFunc(a, b, byAddress) < 0 }

func byAddress(a, b Device) int {
	return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID))
}

// allFree lists what may be chosen of several halves.
func allFree(halves []Half) (all []Device) {
	for _, h := range halves {
		all = append(all, h.Free...)
	}
	return all
}

// allOf lists everything of a kind that a request names.
func allOf(halves []Half, spare, taken []Device) []Device {
	return slices.Concat(allHeld(halves), allFree(halves), spare, taken)
}

func allHeld(halves []Half) (all []Device) {
	for _, h := range halves {
		all = append(all, h.Held...)
	}
	return all
}

// sets lists all ways to take a set from each half.
func (o *oracle) sets(halves []Half, place func(Device) topology.Address) [][]Device {
	sets := [][]Device{nil}
	for _, h := range halves {
		var more [][]Device
		for _, set := range sets {
			for _, of := range o.setsOf(h, place) {
				more = append(more, slices.SortedFunc(slices.Values(slices.Concat(set, of)), byAddress))
			}
		}
		sets = more
	}
	return sets
}

// setsOf lists all sets of a half. Devices with one place differ in nothing but their names: of those the lowest are taken.
func (o *oracle) setsOf(h Half, place func(Device) topology.Address) [][]Device {
	held, free := slices.SortedFunc(slices.Values(h.Held), byAddress), slices.SortedFunc(slices.Values(h.Free), byAddress)
	var sets [][]Device
	var grow func(set, rest []Device)
	grow = func(set, rest []Device) {
		if len(set) == h.Count {
			sets = append(sets, slices.SortedFunc(slices.Values(set), byAddress))
			return
		}
		for i, d := range rest {
			if i > 0 && slices.ContainsFunc(rest[:i], func(e Device) bool { return place(e) == place(d) }) {
				continue
			}
			grow(append(slices.Clone(set), d), rest[i+1:])
		}
	}
	grow(held, free)
	return sets
}

// assign tries every way to pair the sets in equal shares and values the best pairs.
func (o *oracle) assign(gpus, vfs []Device) (best verdict) {
	large, small := vfs, gpus
	if len(gpus) > len(vfs) {
		large, small = gpus, vfs
	}
	if len(small) == 0 {
		return best
	}
	steps := make([][]step, len(large))
	for i, a := range large {
		for _, b := range small {
			steps[i] = append(steps[i], o.distance(a, b))
		}
	}
	share := make([]int, len(small))
	least := len(large) / len(small)
	found := false
	var v verdict
	var try func(i, short int)
	try = func(i, short int) { // short: how much is missing until all have the least share
		if short > len(large)-i {
			return
		}
		if i == len(large) {
			if !found || v.compare(best) < 0 {
				best, found = v, true
			}
			return
		}
		for j, s := range steps[i] {
			if share[j] > least || share[j] == least && len(large)%len(small) == 0 {
				continue
			}
			below := 0
			if share[j] < least {
				below = 1
			}
			share[j]++
			v.levels[s.level]++
			v.detour += s.detour
			v.bridges += s.bridges
			try(i+1, short-below)
			v.bridges -= s.bridges
			v.detour -= s.detour
			v.levels[s.level]--
			share[j]--
		}
	}
	try(0, least*len(small))
	return best
}

// area is a place in the tree with what is taken from it.
type area struct {
	kind     string
	first    topology.Address
	children map[string]*area
	taken    [2]int      // GPUs, VFs
	of       map[int]int // by resource
}

// order is where a choice lies, level by level from the root of the tree down, on each level from the highest address to the lowest:
// how many GPUs and VFs, and of which resources. The least is lowest. Places with nothing but one place in them do not count, NUMA nodes and
// cards excepted.
func (o *oracle) order(gpus, vfs []Device) []int {
	root := &area{}
	resources := 0
	for kind, halves := range [][]Half{o.r.GPUs, o.r.VFs} {
		for _, h := range inOneOrder(halves) {
			if h.Count == 0 {
				continue
			}
			for _, d := range slices.Concat(h.Held, h.Free) {
				root.see(d, o.path(d, kind == 0), kind, resources, slices.Contains(slices.Concat(gpus, vfs), d))
			}
			resources++
		}
	}
	var counts []int
	for level := []*area{root.reduce()}; len(level) > 0; {
		var below []*area
		for _, a := range level {
			children := slices.SortedFunc(maps.Values(a.children), func(a, b *area) int { return b.first.Compare(a.first) })
			for _, c := range children {
				c = c.reduce()
				counts = append(counts, c.taken[:]...)
				for i := range resources {
					counts = append(counts, c.of[i])
				}
				below = append(below, c)
			}
		}
		level = below
	}
	return counts
}

func (a *area) see(d Device, path []string, kind, resource int, taken bool) {
	if a.children == nil {
		a.first, a.children, a.of = d.Address, map[string]*area{}, map[int]int{}
	}
	if d.Address.Compare(a.first) < 0 {
		a.first = d.Address
	}
	if taken {
		a.taken[kind]++
		a.of[resource]++
	}
	if len(path) > 0 {
		if a.children[path[0]] == nil {
			a.children[path[0]] = &area{kind: strings.Fields(path[0])[0]}
		}
		a.children[path[0]].see(d, path[1:], kind, resource, taken)
	}
}

// reduce is the place itself, or the only one in it.
func (a *area) reduce() *area {
	if len(a.children) == 1 && a.kind != "node" && a.kind != "group" {
		for _, c := range a.children {
			return c.reduce()
		}
	}
	return a
}

// path names the places above a device, from the top down, its card or PF included.
func (o *oracle) path(d Device, gpu bool) []string {
	slot, _, node := o.placesOf(d)
	t, ok := o.tree.Device(d.Address)
	if !ok {
		return []string{"group " + slot, slot}
	}
	var names []string
	if node != "" {
		names = append(names, "system", "node "+node)
	}
	names = append(names, t.RootComplex())
	for _, b := range o.tree.SharedBridges(d.Address) {
		names = append(names, b.String())
	}
	names = append(names, "group of "+names[len(names)-1])
	if gpu {
		return append(names, slot)
	}
	return append(names, "PF "+o.function(d).String())
}
