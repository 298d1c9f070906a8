// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"github.com/tandem-k8s/tandem/topology"
)

// subsets is the maximum number of sets of pairs on such switches of a node: before the scheduler finds that
// there are not enough it tries all free sets, at some 10 µs each.
const subsets = 1 << 13

// choosePairs selects the pairs of the switches with too few VFs to reserve them. It selects all pairs; on
// nodes with too many, every GPU is in a pair with one VF, and if those are still too many, each VF is in
// fewer pairs.
func (b *builder) choosePairs() map[*group][]pair {
	var lenient []*group
	sets, share := 1, 0
	for _, g := range b.groups {
		if g.strict() || len(g.vfs) == 0 {
			continue
		}
		lenient = append(lenient, g)
		sets = min(sets*matchings(len(g.gpus), len(g.vfs)), subsets+1)
		share = max(share, (len(g.gpus)+len(g.vfs)-1)/len(g.vfs))
	}
	all := sets <= subsets
	for ; share > 1 && !all && setsOf(lenient, share) > subsets; share-- {
	}
	chosen := map[*group][]pair{}
	for _, g := range lenient {
		chosen[g] = g.partners(share)
		if all {
			chosen[g] = append(chosen[g], g.rest()...)
			continue
		}
		const some = "switch %s: %d pairs of %d GPUs and %d VFs are published: with all %d the scheduler could " +
			"not tell in time that there are not enough"
		gpus, vfs := len(g.gpus), len(g.vfs)
		if len(chosen[g]) < gpus*vfs {
			b.note(some, g.gpus[0].Switch, len(chosen[g]), gpus, vfs, gpus*vfs)
		}
	}
	return chosen
}

// matchings counts the sets of pairs of GPUs and VFs with each device in at most one pair, up to the limit.
func matchings(gpus, vfs int) int {
	total, sets := 1, 1
	for k := range min(gpus, vfs) {
		sets = sets * (gpus - k) * (vfs - k) / (k + 1)
		if total += sets; total > subsets {
			return subsets + 1
		}
	}
	return total
}

// setsOf counts the sets of pairs in which every VF is paired with at most the given number of its partners,
// up to the limit.
func setsOf(groups []*group, share int) int {
	sets := 1
	for _, g := range groups {
		perVF := map[*VF]int{}
		for _, p := range g.partners(share) {
			perVF[p.vf]++
		}
		for _, n := range perVF {
			sets = min(sets*(n+1), subsets+1)
		}
	}
	return sets
}

// partners returns the pairs of partners, with at most the given number for each VF.
func (g *group) partners(share int) (pairs []pair) {
	perVF := map[*VF]int{}
	for _, gpu := range g.gpus {
		if vf := g.partner[gpu]; vf != nil && perVF[vf] < share {
			perVF[vf]++
			pairs = append(pairs, pair{gpu, vf})
		}
	}
	return pairs
}

// rest returns the pairs that are not partners.
func (g *group) rest() (pairs []pair) {
	for _, gpu := range g.gpus {
		for _, vf := range g.vfs {
			if vf != g.partner[gpu] && g.same(gpu, vf) {
				pairs = append(pairs, pair{gpu, vf})
			}
		}
	}
	return pairs
}

// lenientUnit returns the devices of a switch with too few VFs to reserve them.
func lenientUnit(g *group, pairs []pair, links []topology.Link) (unit []item) {
	for _, card := range cards(g.gpus) {
		if isPartitioned(card) {
			unit = append(unit,
				newItem(TypeBundle, addressName(card[0].Card), rankBundle, card, shareOf(g, card, links)))
		}
	}
	for _, p := range pairs {
		unit = append(unit, namedPair(p.gpu, p.vf))
	}
	unit = append(unit, leftoverFirst(g.gpus, pairs)...)
	for _, vf := range byRail(g.vfs) {
		unit = append(unit, aloneVF(vf, rankPairedVF))
	}
	return unit
}

// leftoverFirst returns the single GPUs. GPU-only claims first take the GPUs that remain if each VF has one.
// They take partitions card by card: whole cards stay free, and a card's own VFs are as near.
func leftoverFirst(gpus []*GPU, pairs []pair) (unit []item) {
	first, served := map[*GPU]bool{}, map[*VF]bool{}
	for _, p := range pairs {
		if !served[p.vf] {
			first[p.gpu], served[p.vf] = true, true
		}
	}
	for _, card := range cards(gpus) {
		for _, leftover := range []bool{true, false} {
			for _, gpu := range card {
				switch {
				case first[gpu] == leftover:
				case leftover && !isPartitioned(card):
					unit = append(unit, alone(gpu, rankGPU))
				default:
					unit = append(unit, alone(gpu, rankPairedGPU))
				}
			}
		}
	}
	return unit
}

// shareOf returns the VFs of a card if cards share the VFs of their switch: no VF is in two shares.
func shareOf(g *group, card []*GPU, links []topology.Link) (vfs []*VF) {
	var firsts []*GPU
	for _, c := range cards(g.gpus) {
		firsts = append(firsts, c[0])
	}
	owner := map[*VF]*GPU{}
	for _, p := range g.pairs(firsts, g.vfs, len(g.vfs), links) {
		if owner[p.vf] == nil {
			owner[p.vf] = p.gpu
		}
	}
	for _, vf := range g.vfs {
		if owner[vf] == card[0] && len(vfs) < len(card) {
			vfs = append(vfs, vf)
		}
	}
	return vfs
}
