// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// area is a place in the tree with what is taken from it.
type area struct {
	kind     string
	first    topology.Address
	children map[string]*area
	taken    [2]int      // GPUs, VFs
	of       map[int]int // by resource
}

// order is where a choice lies, level by level from the root of the tree down, on each level from the highest
// address to the lowest: how many GPUs and VFs, and of which resources. The least is lowest. Places with
// nothing but one place in them do not count, NUMA nodes and cards excepted.
func (o *oracle) order(gpus, vfs []Device) []int {
	root := &area{}
	resources := 0
	for kind, halves := range [][]Half{o.r.GPUs, o.r.VFs} {
		for _, h := range sortHalves(halves) {
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
			children := slices.SortedFunc(maps.Values(a.children), func(a, b *area) int {
				return b.first.Compare(a.first)
			})
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
	if _, ok := o.tree.Device(d.Address); !ok {
		return []string{"group " + slot, slot}
	}
	var names []string
	if node != "" {
		names = append(names, "system", "node "+node)
	}
	names = append(names, o.tree.Top(d.Address))
	for _, b := range o.tree.SharedBridges(d.Address) {
		names = append(names, b.String())
	}
	names = append(names, "group of "+names[len(names)-1])
	if gpu {
		return append(names, slot)
	}
	return append(names, "PF "+o.function(d).String())
}

// sameIndex is the best of all sets of VFs that take as many of every resource from every PF as the given one
// does: the last criterion.
func (o *oracle) sameIndex(vfs []Device) []Device {
	type source struct {
		half int
		pf   topology.Address
	}
	missing := map[source]int{}
	of := func(d Device) source {
		i := slices.IndexFunc(o.r.VFs, func(h Half) bool {
			return slices.Contains(h.Held, d) || slices.Contains(h.Free, d)
		})
		return source{i, o.function(d)}
	}
	kept := allHeld(o.r.VFs)
	for _, d := range vfs {
		if !slices.Contains(kept, d) {
			missing[of(d)]++
		}
	}
	free := slices.SortedFunc(slices.Values(allFree(o.r.VFs)), byAddress)
	var best []Device
	var bestIndices []int
	var grow func(set, rest []Device)
	grow = func(set, rest []Device) {
		if len(set) == len(vfs) {
			if indices := o.indices(set); best == nil || slices.Compare(indices, bestIndices) < 0 {
				best, bestIndices = set, indices
			}
			return
		}
		for i, d := range rest {
			if from := of(d); missing[from] > 0 {
				missing[from]--
				grow(append(slices.Clone(set), d), rest[i+1:])
				missing[from]++
			}
		}
	}
	grow(kept, free)
	return slices.SortedFunc(slices.Values(best), byAddress)
}

// indices lists the indices of VFs: those on the most PFs first, then the lowest. Where there are more PFs
// with one the number is less, so that the least list is the best.
func (o *oracle) indices(vfs []Device) []int {
	on := map[int]int{}
	for i, d := range vfs {
		index := 1000 + i
		if pf, ok := o.tree.Device(o.function(d)); ok && slices.Contains(pf.VFs, d.Address) {
			index = slices.Index(pf.VFs, d.Address)
		}
		on[index]++
	}
	var list []int
	for index := range on {
		list = append(list, index)
	}
	slices.SortFunc(list, func(a, b int) int { return cmp.Or(cmp.Compare(on[b], on[a]), cmp.Compare(a, b)) })
	var counts []int
	for _, index := range list {
		counts = append(counts, -on[index], index)
	}
	return counts
}
