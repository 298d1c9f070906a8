// SPDX-License-Identifier: Apache-2.0

package best

import (
	"errors"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// Shared returns the best pairs of any choice of devices if all devices of the larger half have a partner,
// and the devices of the smaller half equal shares of them, which differ by at most one.
//
// It tries every choice of the smaller half. A device of the choice counts as many times as its share is
// large: the best pairs of a choice are a matching, as in [Reachable].
func Shared(gpus, vfs Side, level Level) (Pairs, error) {
	small, large, near := gpus, vfs, level
	if gpus.Want > vfs.Want {
		small, large = vfs, gpus
		near = func(vf, gpu topology.Address) topology.Level { return level(gpu, vf) }
	}
	if small.Want == 0 || small.Want == large.Want {
		return Reachable(gpus, vfs, level)
	}
	if err := errors.Join(gpus.check("GPUs"), vfs.check("VFs")); err != nil {
		return Pairs{}, err
	}
	var best Pairs
	small.eachChoice(large, near, func(chosen []topology.Address) {
		if pairs := shares(chosen, large, near); pairs.Compare(best) < 0 {
			best = pairs
		}
	})
	return best, nil
}

// shares returns the best pairs of the smaller half's devices with a choice of the larger half.
func shares(chosen []topology.Address, large Side, level Level) (pairs Pairs) {
	var left []vertex
	for _, address := range chosen {
		for range large.Want / len(chosen) {
			left = append(left, vertex{address: address, must: true})
		}
		if large.Want%len(chosen) > 0 {
			left = append(left, vertex{address: address})
		}
	}
	right := large.vertices(large.Want)
	m := newMatching(len(left), len(right), func(l, r int) int64 {
		return weight(left[l], right[r], level, large.Want)
	})
	for range large.Want {
		m.augment()
	}
	for l, r := range m.left {
		if r != unmatched {
			pairs[level(left[l].address, right[r].address)]++
		}
	}
	return pairs
}

// eachChoice visits the choices of a half. Of devices with the same distances, the order does not matter.
func (s Side) eachChoice(other Side, level Level, visit func(chosen []topology.Address)) {
	type device struct {
		address topology.Address
		levels  []topology.Level // to all devices of the other half
	}
	var free []device
	for _, a := range s.Free {
		d := device{address: a}
		for _, b := range slices.Concat(other.Held, other.Free) {
			d.levels = append(d.levels, level(a, b))
		}
		free = append(free, d)
	}
	slices.SortFunc(free, func(a, b device) int { return slices.Compare(a.levels, b.levels) })
	var choose func(from int, chosen []topology.Address)
	choose = func(from int, chosen []topology.Address) {
		if len(chosen) == s.Want {
			visit(chosen)
			return
		}
		for i := from; i < len(free); i++ {
			if i == from || !slices.Equal(free[i-1].levels, free[i].levels) {
				choose(i+1, append(slices.Clip(chosen), free[i].address))
			}
		}
	}
	choose(0, s.Held)
}
