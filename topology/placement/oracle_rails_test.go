package placement

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// sameIndex is the best of all sets of VFs that take as many from every PF as the given one does: the sixth criterion.
func (o *oracle) sameIndex(vfs []Device) []Device {
	missing := map[topology.Address]int{}
	for _, d := range vfs {
		if !slices.Contains(o.r.VFs[0].Held, d) {
			missing[o.function(d)]++
		}
	}
	free := slices.SortedFunc(slices.Values(o.r.VFs[0].Free), byAddress)
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
			if pf := o.function(d); missing[pf] > 0 {
				missing[pf]--
				grow(append(slices.Clone(set), d), rest[i+1:])
				missing[pf]++
			}
		}
	}
	grow(slices.Clone(o.r.VFs[0].Held), free)
	return slices.SortedFunc(slices.Values(best), byAddress)
}

// indices lists the indices of VFs: those on the most PFs first, then the lowest. Where there are more PFs with one the number is less,
// so that the least list is the best.
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
