// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"slices"

	"github.com/tandem-k8s/tandem/plugins/dra/inventory"
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
// own if possible. A GPU is published alone while a claim holds it alone, or another claim holds its VF.
func (b *builder) addSingle() {
	var paired, others [][]item
	bound := b.bound()
	for _, g := range b.groups {
		b.spread(g, bound)
		first := firstOfEach(g, bound)
		for _, gpu := range g.gpus {
			vf := g.partner[gpu]
			if vf == nil || first[vf] != gpu {
				others = append(others, []item{alone(gpu, rankGPU)})
				continue
			}
			if b.options.InUse[gpu.ID] == alone(gpu, rankGPU).Name || b.isOfOthers(vf, bound[gpu.ID]) {
				g.reserved = append(g.reserved, vf) // for the time afterwards
				others = append(others, []item{alone(gpu, rankGPU)})
				continue
			}
			paired = append(paired, []item{gpuWithVF(gpu, vf)})
		}
	}
	b.units = append(b.units, slices.Concat(others, paired)...)
}

// spread gives the free VFs that are no GPU's partner to GPUs whose partner another GPU holds, for example
// since the cluster had counters. The other GPUs keep their partners, and so the names of their devices.
func (b *builder) spread(g *group, bound map[string]*inventory.VF) {
	partners, holders := map[*inventory.VF]bool{}, map[*inventory.VF]bool{}
	for gpu, vf := range g.partner {
		partners[vf] = true
		holders[vf] = holders[vf] || bound[gpu.ID] == vf
	}
	gpus := slices.DeleteFunc(slices.Clone(g.gpus), func(gpu *inventory.GPU) bool {
		vf := g.partner[gpu]
		return gpu.Held != "" || !holders[vf] || bound[gpu.ID] == vf
	})
	vfs := slices.DeleteFunc(slices.Clone(g.vfs), func(vf *inventory.VF) bool {
		return partners[vf] || b.unfit[vf.ID] || b.isOfOthers(vf, nil)
	})
	n := min(len(gpus), len(vfs))
	g.take(g.pairs(gpus[:n], vfs, n, b.machine.Links))
}

// isOfOthers reports whether a claim holds a VF, and not together with the GPU with the bound VF.
func (b *builder) isOfOthers(vf, bound *inventory.VF) bool {
	return vf != bound && (b.inUse[vf.ID] || b.options.InUse[vf.ID] != "")
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
