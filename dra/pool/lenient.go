package pool

import (
	"github.com/tandem-k8s/tandem/dra/inventory"
)

// subsets is how many sets of pairs of such switches a node has at the most: before the scheduler finds that
// there are not enough it has tried all of those that are free, at some 10 µs each.
const subsets = 1 << 13

// choosePairs finds the pairs of the switches that have too few VFs to reserve them. They are all that there
// are; on nodes where these are too many every GPU is in a pair with one VF, and where those are too many, a
// VF is in fewer of them.
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

// matchings counts the sets of pairs that some GPUs and VFs make, each of them in one pair at the most; no
// further than the limit.
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

// setsOf counts the sets of pairs where every VF is paired with so many of its partners at the most; no
// further than the limit.
func setsOf(groups []*group, share int) int {
	sets := 1
	for _, g := range groups {
		perVF := map[*inventory.VF]int{}
		for _, p := range g.partners(share) {
			perVF[p.vf]++
		}
		for _, n := range perVF {
			sets = min(sets*(n+1), subsets+1)
		}
	}
	return sets
}

// partners are the pairs of partners, so many of each VF at the most.
func (g *group) partners(share int) (pairs []pair) {
	perVF := map[*inventory.VF]int{}
	for _, gpu := range g.gpus {
		if vf := g.partner[gpu]; vf != nil && perVF[vf] < share {
			perVF[vf]++
			pairs = append(pairs, pair{gpu, vf})
		}
	}
	return pairs
}

// rest are the pairs of those that are not partners.
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

// lenient are the devices of a switch that has too few VFs to reserve them.
func (b *builder) lenient(g *group, pairs []pair) (unit []item) {
	for _, card := range cards(g.gpus) {
		if isPartitioned(card) {
			unit = append(unit, newItem(Bundle, addressName(card[0].Card), rankBundle, card, b.share(g, card)))
		}
	}
	ranks := map[*inventory.GPU]rank{}
	for _, p := range pairs {
		ranks[p.gpu] = rankPairedGPU
		unit = append(unit, namedPair(p.gpu, p.vf))
	}
	for _, gpu := range g.gpus {
		unit = append(unit, alone(gpu, max(ranks[gpu], rankGPU)))
	}
	for _, vf := range byRail(g.vfs) {
		unit = append(unit, aloneVF(vf, rankPairedVF))
	}
	return unit
}

// share are the VFs of a card where cards have to share those of their switch: no VF is in two shares.
func (b *builder) share(g *group, card []*inventory.GPU) (vfs []*inventory.VF) {
	var firsts []*inventory.GPU
	for _, c := range cards(g.gpus) {
		firsts = append(firsts, c[0])
	}
	owner := map[*inventory.VF]*inventory.GPU{}
	for _, p := range g.pairs(firsts, g.vfs, len(g.vfs), b.machine.Links) {
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
