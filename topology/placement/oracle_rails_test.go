// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

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
