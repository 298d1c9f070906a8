// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// best looks at every choice and returns the value of the best and, of those worth the same, the one with the
// lowest addresses.
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

// setsOf lists all sets of a half. Devices with one place differ in nothing but their names: of those the
// lowest are taken.
func (o *oracle) setsOf(h Half, place func(Device) topology.Address) [][]Device {
	held, free := slices.SortedFunc(slices.Values(h.Held), byAddress),
		slices.SortedFunc(slices.Values(h.Free), byAddress)
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
