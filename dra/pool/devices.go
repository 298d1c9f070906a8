package pool

import (
	"slices"

	"github.com/tandem-k8s/tandem/dra/inventory"
	"github.com/tandem-k8s/tandem/topology"
)

// combinations is how many pairs the GPUs and VFs of a switch make at the most. The scheduler tries subsets
// of what is free before it gives up, and they multiply: beyond, a GPU is paired with one VF alone.
const combinations = 16

// addSharing adds the GPUs and pairs where devices can share counters.
func (b *builder) addSharing() {
	b.addAlone()
	for _, g := range b.groups {
		if g.strict() {
			for _, card := range cards(g.gpus) {
				b.addUnit(b.strict(g, card)...)
			}
		} else if len(g.vfs) > 0 {
			b.addUnit(b.lenient(g)...)
		}
	}
}

// addAlone adds the cards that no VF is near: GPU-only claims take them first.
func (b *builder) addAlone() {
	for _, g := range b.groups {
		if len(g.vfs) > 0 {
			continue
		}
		for _, card := range cards(g.gpus) {
			var unit []item
			if isPartitioned(card) {
				unit = append(unit, newItem(Bundle, addressName(card[0].Card), rankBundle, card, nil))
			}
			for _, gpu := range card {
				unit = append(unit, alone(gpu, rankGPU))
			}
			b.addUnit(unit...)
		}
	}
}

// strict are the devices of a card of which every GPU has a VF of its own.
func (b *builder) strict(g *group, card []*inventory.GPU) (unit []item) {
	var with, without []*inventory.GPU
	var vfs []*inventory.VF
	for _, gpu := range card {
		vf := g.partner[gpu]
		if vf == nil {
			without = append(without, gpu)
			unit = append(unit, alone(gpu, rankGPU))
			continue
		}
		with, vfs = append(with, gpu), append(vfs, vf)
		unit = append(unit, newItem(Pair, gpuName(gpu), rankPair, []*inventory.GPU{gpu}, []*inventory.VF{vf}),
			alone(gpu, rankPairedGPU))
	}
	if isPartitioned(card) {
		all := slices.Concat(with, without)
		unit = append(unit, newItem(Bundle, addressName(card[0].Card), rankBundle, all, vfs))
	}
	return unit
}

// lenient are the devices of a switch that has too few VFs to reserve them.
func (b *builder) lenient(g *group) (unit []item) {
	for _, card := range cards(g.gpus) {
		if isPartitioned(card) {
			unit = append(unit, newItem(Bundle, addressName(card[0].Card), rankBundle, card, b.share(g, card)))
		}
	}
	for _, p := range g.combined() {
		name := gpuName(p.gpu) + "-" + vfName(p.vf)
		unit = append(unit, newItem(Pair, name, rankPair, []*inventory.GPU{p.gpu}, []*inventory.VF{p.vf}))
	}
	for _, gpu := range g.gpus {
		unit = append(unit, alone(gpu, rankPairedGPU))
	}
	for _, vf := range byRail(g.vfs) {
		unit = append(unit, newItem(VF, vfName(vf), rankPairedVF, nil, []*inventory.VF{vf}))
	}
	return unit
}

// combined are the pairs of a switch that are published: those of partners first, then the others.
func (g *group) combined() (all []pair) {
	for _, gpu := range g.gpus {
		if vf := g.partner[gpu]; vf != nil {
			all = append(all, pair{gpu, vf})
		}
	}
	if len(g.gpus)*len(g.vfs) > combinations {
		return all
	}
	for _, gpu := range g.gpus {
		for _, vf := range g.vfs {
			if vf != g.partner[gpu] && g.same(gpu, vf) {
				all = append(all, pair{gpu, vf})
			}
		}
	}
	return all
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

// addSingle adds the GPUs where devices cannot share counters: each in one device, with a VF of its own where
// there is one for it.
func (b *builder) addSingle() {
	var paired, others [][]item
	for _, g := range b.groups {
		used := map[*inventory.VF]bool{}
		for _, gpu := range g.gpus {
			vf := g.partner[gpu]
			if vf == nil || used[vf] {
				others = append(others, []item{alone(gpu, rankGPU)})
				continue
			}
			used[vf] = true
			both := newItem(GPUVF, gpuName(gpu), rankPairedGPU, []*inventory.GPU{gpu}, []*inventory.VF{vf})
			paired = append(paired, []item{both})
		}
	}
	b.units = append(b.units, slices.Concat(others, paired)...)
}

func alone(gpu *inventory.GPU, r rank) item {
	return newItem(GPU, gpuName(gpu), r, []*inventory.GPU{gpu}, nil)
}

// cards sorts GPUs under their cards, in their order.
func cards(gpus []*inventory.GPU) (sorted [][]*inventory.GPU) {
	place := map[topology.Address]int{}
	for _, gpu := range gpus {
		i, ok := place[gpu.Card]
		if !ok {
			i = len(sorted)
			place[gpu.Card] = i
			sorted = append(sorted, nil)
		}
		sorted[i] = append(sorted[i], gpu)
	}
	return sorted
}

func isPartitioned(card []*inventory.GPU) bool { return len(card) > 1 }
