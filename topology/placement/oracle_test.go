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
	tree *topology.Tree
	r    Request
}

// verdict is what a choice is worth, the objective in the words of doc.go; less is better.
type verdict struct {
	levels   [topology.Levels]int
	bridges  int
	load     int
	locality int
	left     [5]int // what is left: pairs, then squares by card, switch, NUMA node (GPUs) and NUMA node (VFs)
}

func (a verdict) compare(b verdict) int {
	for i := range a.levels {
		if c := cmp.Compare(b.levels[i], a.levels[i]); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(a.bridges, b.bridges), cmp.Compare(a.load, b.load), cmp.Compare(a.locality, b.locality),
		slices.Compare(b.left[:], a.left[:]))
}

// pairsOnly compares the first criterion alone.
func (a verdict) pairsOnly(b verdict) int {
	a.load, a.locality, a.left = b.load, b.locality, b.left
	return a.compare(b)
}

// judge values a choice with its pairs.
func (o *oracle) judge(gpus, vfs []Device, pairs []Pair) verdict {
	v := o.judgeSets(gpus, vfs)
	for _, p := range pairs {
		level, bridges := o.distance(p.GPU, p.VF)
		v.levels[level]++
		v.bridges += bridges
	}
	return v
}

// distance is the tree's, but beyond telling every device counts the bridges above it.
func (o *oracle) distance(a, b Device) (level, bridges int) {
	d := o.tree.Distance(a.Address, b.Address)
	if d.Level == topology.UNK {
		d.Bridges = len(o.tree.SharedBridges(a.Address)) + len(o.tree.SharedBridges(b.Address))
	}
	return int(d.Level), d.Bridges
}

func (o *oracle) judgeSets(gpus, vfs []Device) verdict {
	var v verdict
	perPF := map[topology.Address]int{}
	for _, d := range vfs {
		pf := o.function(d)
		if perPF[pf] == 0 {
			perPF[pf] = o.r.Load[pf]
			if f, ok := o.tree.Device(pf); ok && f.PCIe.Degraded() {
				perPF[pf]++
			}
			perPF[pf] += 1000 // so that 0 stands for a PF not met
		}
		v.load += perPF[pf] - 1000
		perPF[pf]++
	}
	for i := range gpus {
		for j := range i {
			v.locality += o.near(gpus[i], gpus[j])
		}
	}
	v.left = o.left(gpus, vfs)
	return v
}

func (o *oracle) function(d Device) topology.Address {
	if f, ok := o.tree.Device(d.Address); ok {
		return f.Function()
	}
	return d.Address
}

func (o *oracle) near(a, b Device) int {
	if a.Address == b.Address {
		return 0
	}
	best := 0
	for _, l := range o.r.Links {
		if (l.A == a.Address && l.B == b.Address) || (l.B == a.Address && l.A == b.Address) {
			if n := 100*l.Hops - l.Count; best == 0 || n < best {
				best = n
			}
		}
	}
	if best > 0 {
		return best
	}
	level := o.tree.Distance(a.Address, b.Address).Level
	n := 1000 + 100*int(level)
	if level == topology.PXB {
		x, y := o.tree.SharedBridges(a.Address), o.tree.SharedBridges(b.Address)
		for i := 0; i < len(x) && i < len(y) && x[i] == y[i]; i++ {
			n--
		}
	}
	return n
}

// left counts what stays free, by place.
func (o *oracle) left(gpus, vfs []Device) [5]int {
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
	count(slices.Concat(o.r.GPUs[0].Free, o.r.Spare.GPUs), gpus, func(_ Device, slot, group, node string) {
		at(cards, slot).gpus++
		at(switches, group).gpus++
		at(nodes, node).gpus++
	})
	count(slices.Concat(o.r.VFs[0].Free, o.r.Spare.VFs), vfs, func(_ Device, _, group, node string) {
		at(switches, group).vfs++
		at(nodes, node).vfs++
	})
	delete(nodes, "")
	var left [5]int
	for _, f := range cards {
		left[1] += f.gpus * f.gpus
	}
	for _, f := range switches {
		left[0] += min(f.gpus, f.vfs)
		left[2] += f.gpus * f.gpus
	}
	for _, f := range nodes {
		left[3] += f.gpus * f.gpus
		left[4] += f.vfs * f.vfs
	}
	return left
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
	gpuSets := o.sets(o.r.GPUs[0], func(d Device) topology.Address { return d.Address })
	vfSets := o.sets(o.r.VFs[0], o.function)
	for _, gpus := range gpuSets {
		for _, vfs := range vfSets {
			var v verdict
			if v.levels, v.bridges = o.assign(gpus, vfs); found && v.pairsOnly(best) > 0 {
				continue // the rest cannot make up for it
			}
			levels, bridges := v.levels, v.bridges
			v = o.judgeSets(gpus, vfs)
			v.levels, v.bridges = levels, bridges
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

// sets lists all sets of a half. Devices with one place differ in nothing but their names: of those the lowest are taken.
func (o *oracle) sets(h Half, place func(Device) topology.Address) [][]Device {
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

// assign tries every way to pair the sets in equal shares.
func (o *oracle) assign(gpus, vfs []Device) (levels [topology.Levels]int, bridges int) {
	large, small := vfs, gpus
	if len(gpus) > len(vfs) {
		large, small = gpus, vfs
	}
	if len(small) == 0 {
		return levels, 0
	}
	type step struct{ level, bridges int }
	steps := make([][]step, len(large))
	for i, a := range large {
		for _, b := range small {
			level, bridges := o.distance(a, b)
			steps[i] = append(steps[i], step{level, bridges})
		}
	}
	share := make([]int, len(small))
	least := len(large) / len(small)
	found := false
	var best, v verdict
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
			v.bridges += s.bridges
			try(i+1, short-below)
			v.bridges -= s.bridges
			v.levels[s.level]--
			share[j]--
		}
	}
	try(0, least*len(small))
	return best.levels, best.bridges
}

// area is a place in the tree with what is taken from it.
type area struct {
	kind     string
	first    topology.Address
	children map[string]*area
	gpus     int
	vfs      int
}

// order is where a choice lies, level by level from the root of the tree down, on each level from the highest address to the lowest:
// how many GPUs and VFs. The least is lowest. Places with nothing but one place in them do not count, NUMA nodes and cards excepted.
func (o *oracle) order(gpus, vfs []Device) []int {
	root := &area{}
	see := func(h Half, gpu bool, taken []Device) {
		if h.Count == 0 {
			return
		}
		for _, d := range slices.Concat(h.Held, h.Free) {
			root.see(d, o.path(d, gpu), gpu, slices.Contains(taken, d))
		}
	}
	see(o.r.GPUs[0], true, gpus)
	see(o.r.VFs[0], false, vfs)
	var counts []int
	for level := []*area{root.reduce()}; len(level) > 0; {
		var below []*area
		for _, a := range level {
			children := slices.SortedFunc(maps.Values(a.children), func(a, b *area) int { return b.first.Compare(a.first) })
			for _, c := range children {
				c = c.reduce()
				counts = append(counts, c.gpus, c.vfs)
				below = append(below, c)
			}
		}
		level = below
	}
	return counts
}

func (a *area) see(d Device, path []string, gpu, taken bool) {
	if a.children == nil {
		a.first, a.children = d.Address, map[string]*area{}
	}
	if d.Address.Compare(a.first) < 0 {
		a.first = d.Address
	}
	if taken && gpu {
		a.gpus++
	} else if taken {
		a.vfs++
	}
	if len(path) > 0 {
		if a.children[path[0]] == nil {
			a.children[path[0]] = &area{kind: strings.Fields(path[0])[0]}
		}
		a.children[path[0]].see(d, path[1:], gpu, taken)
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

// path names the places above a device, from the top down, its card for a GPU included.
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
		names = append(names, slot)
	}
	return names
}
