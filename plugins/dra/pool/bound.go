// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"maps"
	"slices"
)

// bound contains the VFs that claims hold together with GPUs, by the GPU's ID.
func (b *builder) bound() map[string]*VF {
	bound := map[string]*VF{}
	for i := range b.machine.GPUs {
		gpu := &b.machine.GPUs[i]
		for name, id := range b.options.Bound {
			if vf := b.vfs[id]; vf != nil && (name == alone(gpu, 0).Name || isPair(name, gpu, vf)) {
				bound[gpu.ID] = vf
			}
		}
	}
	return bound
}

// isPair reports whether a device is the pair of a GPU and a VF, under any of its possible names.
func isPair(name string, gpu *GPU, vf *VF) bool {
	return slices.ContainsFunc(pairs(gpu, vf), func(i item) bool { return i.Name == name })
}

// pairs returns the possible devices of a GPU and a VF.
func pairs(gpu *GPU, vf *VF) []item {
	return []item{reservedPair(gpu, vf), namedPair(gpu, vf), gpuWithVF(gpu, vf)}
}

// addBound adds devices of claims that would no longer be published: otherwise the scheduler would not know
// their consumption. They cannot be allocated while devices that share with them are allocated.
func (b *builder) addBound() {
	published := map[string]bool{}
	each(b.units, func(i *item) { published[i.Name] = true })
	for _, name := range slices.Sorted(maps.Keys(b.options.Bound)) {
		if published[name] {
			continue
		}
		if i, ok := deviceNamed(b.machine, name, b.vfs[b.options.Bound[name]]); ok {
			b.addUnit(i)
		}
	}
}

// deviceNamed returns the device of a claim by its name, and reports whether the machine still has its GPU
// and VF.
func deviceNamed(machine Machine, name string, has *VF) (item, bool) {
	for i := range machine.VFs {
		if vf := aloneVF(&machine.VFs[i], rankVF); vf.Name == name {
			return vf, true
		}
	}
	for i := range machine.GPUs {
		if has == nil {
			continue
		}
		for _, p := range pairs(&machine.GPUs[i], has) {
			if p.Name == name {
				return p, true
			}
		}
	}
	return item{}, false
}

// SingleVFs returns all VFs of a machine as devices of their own, by name, whether or not they are published
// as such: a claim can be allocated a VF that becomes part of a pair before the claim is prepared.
func SingleVFs(machine Machine) map[string]Device {
	single := make(map[string]Device, len(machine.VFs))
	for i := range machine.VFs {
		d := aloneVF(&machine.VFs[i], rankVF).Device
		single[d.Name] = d
	}
	return single
}

// claimed is the consumption that the scheduler knows: the published devices of claims, and the counters that
// they consume.
type claimed struct {
	devices, counters map[string]bool
}

func (b *builder) claimed(c *counters) claimed {
	names := map[string]bool{}
	for name := range b.options.Bound {
		names[name] = true
	}
	for _, name := range b.options.InUse {
		names[name] = true
	}
	taken := claimed{map[string]bool{}, map[string]bool{}}
	each(b.units, func(i *item) {
		isPublished := b.options.Taints || len(taints(i, "")) == 0
		if isPublished && names[i.Name] {
			taken.devices[i.Name] = true
			for _, counter := range c.of(i) {
				taken.counters[counter] = true
			}
		}
	})
	return taken
}

// inUseBy returns the device through which a claim holds a part of d without the scheduler's knowledge: the
// claim's device is not published, or now has other parts. It returns "" for all other devices.
func (b *builder) inUseBy(i *item, c *counters, taken claimed) string {
	isTaken := func(counter string) bool { return taken.counters[counter] }
	if taken.devices[i.Name] || slices.ContainsFunc(c.of(i), isTaken) {
		return ""
	}
	for _, id := range slices.Concat(i.GPUs, i.VFs) {
		if by := b.options.InUse[id]; by != "" {
			return by
		}
	}
	return ""
}
