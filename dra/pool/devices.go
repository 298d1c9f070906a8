// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"slices"

	"github.com/tandem-k8s/tandem/dra/inventory"
)

// addSharing adds the GPUs and pairs on a cluster with shared counters.
func (b *builder) addSharing() {
	b.addAlone()
	chosen := b.choosePairs()
	for _, g := range b.groups {
		if g.strict() {
			for _, card := range cards(g.gpus) {
				b.addUnit(strictUnit(g, card)...)
			}
		} else if len(g.vfs) > 0 {
			b.addUnit(lenientUnit(g, chosen[g], b.machine.Links)...)
		}
	}
}

// addAlone adds the cards without a near VF: the scheduler allocates them first for GPU-only claims.
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

// strictUnit returns the devices of a card of which every GPU has a VF of its own.
func strictUnit(g *group, card []*inventory.GPU) (unit []item) {
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
		unit = append(unit, reservedPair(gpu, vf), alone(gpu, rankPairedGPU))
	}
	if isPartitioned(card) {
		all := slices.Concat(with, without)
		unit = append(unit, newItem(Bundle, addressName(card[0].Card), rankBundle, all, vfs))
	}
	return unit
}

// addSingle adds the GPUs on a cluster without shared counters: each GPU is in one device, with a VF of its
// own if possible.
func (b *builder) addSingle() {
	var paired, others [][]item
	bound := b.bound()
	for _, g := range b.groups {
		first := firstOfEach(g, bound)
		for _, gpu := range g.gpus {
			vf := g.partner[gpu]
			if vf == nil || first[vf] != gpu {
				others = append(others, []item{alone(gpu, rankGPU)})
				continue
			}
			paired = append(paired, []item{gpuWithVF(gpu, vf)})
		}
	}
	b.units = append(b.units, slices.Concat(others, paired)...)
}

// firstOfEach returns the GPU that gets each VF that is the partner of several GPUs: the GPU that already
// holds the VF, or the first one.
func firstOfEach(g *group, bound map[string]*inventory.VF) map[*inventory.VF]*inventory.GPU {
	first := map[*inventory.VF]*inventory.GPU{}
	for _, gpu := range g.gpus {
		vf := g.partner[gpu]
		if vf != nil && (first[vf] == nil || bound[gpu.ID] == vf) {
			first[vf] = gpu
		}
	}
	return first
}
