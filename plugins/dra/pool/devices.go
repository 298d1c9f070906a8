// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
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
				unit = append(unit, newItem(TypeBundle, addressName(card[0].Card), rankBundle, card, nil))
			}
			for _, gpu := range card {
				unit = append(unit, alone(gpu, rankGPU))
			}
			b.addUnit(unit...)
		}
	}
}

// strictUnit returns the devices of a card of which every GPU has a VF of its own.
func strictUnit(g *group, card []*GPU) (unit []item) {
	var with, without []*GPU
	var vfs []*VF
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
		unit = append(unit, newItem(TypeBundle, addressName(card[0].Card), rankBundle, all, vfs))
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
func (b *builder) spread(g *group, bound map[string]*VF) {
	partners, holders := map[*VF]bool{}, map[*VF]bool{}
	for gpu, vf := range g.partner {
		partners[vf] = true
		holders[vf] = holders[vf] || bound[gpu.ID] == vf
	}
	gpus := slices.DeleteFunc(slices.Clone(g.gpus), func(gpu *GPU) bool {
		vf := g.partner[gpu]
		return gpu.Held != "" || !holders[vf] || bound[gpu.ID] == vf
	})
	vfs := slices.DeleteFunc(slices.Clone(g.vfs), func(vf *VF) bool {
		return partners[vf] || b.unfit[vf.ID] || b.isOfOthers(vf, nil)
	})
	n := min(len(gpus), len(vfs))
	g.take(g.pairs(gpus[:n], vfs, n, b.machine.Links))
}

// isOfOthers reports whether a claim holds a VF, and not together with the GPU with the bound VF.
func (b *builder) isOfOthers(vf, bound *VF) bool {
	return vf != bound && (b.inUse[vf.ID] || b.options.InUse[vf.ID] != "")
}

// firstOfEach returns the GPU that gets each VF that is the partner of several GPUs: the GPU that already
// holds the VF, or the first one.
func firstOfEach(g *group, bound map[string]*VF) map[*VF]*GPU {
	first := map[*VF]*GPU{}
	for _, gpu := range g.gpus {
		vf := g.partner[gpu]
		if vf != nil && (first[vf] == nil || bound[gpu.ID] == vf) {
			first[vf] = gpu
		}
	}
	return first
}

// addressName returns an address as part of a DNS label: "11-00-0", with the domain if it is not 0.
func addressName(a topology.Address) string {
	name := fmt.Sprintf("%02x-%02x-%d", a.Bus, a.Device, a.Function)
	if a.Domain != 0 {
		name = fmt.Sprintf("%04x-%s", a.Domain, name)
	}
	return name
}

// gpuName names a GPU by its card, and a partition also by its part: "11-00-0", "11-00-0-p3".
func gpuName(g *GPU) string {
	name := addressName(g.Card)
	if !g.Whole() {
		name += "-p" + part(g)
	}
	return name
}

// Counter names of a GPU and of a VF.
func gpuCounter(g *GPU) string { return string(TypeGPU) + "-" + gpuName(g) }
func vfCounter(v *VF) string   { return string(TypeVF) + "-" + vfName(v) }

// part returns the name of a partition within its card; the card's own function is the first partition.
func part(g *GPU) string {
	if g.Part == "" {
		return "0"
	}
	return g.Part
}

// vfName names a VF by its address, and a sub-function also by its number: "0c-00-1", "0c-00-0-sf4".
func vfName(v *VF) string {
	name := addressName(v.Address)
	if v.Aux != "" {
		name += "-sf" + v.Aux[strings.LastIndexByte(v.Aux, '.')+1:]
	}
	return name
}

// label converts a text to a label value: at most 63 letters, digits, "-", "_" and ".", with an alphanumeric
// first and last character.
func label(text string) string {
	const most = 63
	var out strings.Builder
	for _, r := range text {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)
		switch {
		case out.Len() == most:
		case ok:
			out.WriteRune(r)
		case !strings.HasSuffix(out.String(), "-"):
			out.WriteByte('-')
		}
	}
	return strings.Trim(out.String(), "-_.")
}
