// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// most is the maximum number of devices of a slice, with or without taints: a slice without room for another
// taint would have to be split when a taint is needed, and meanwhile the whole pool would be unusable.
const most = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// pool returns the pool that was built.
func (b *builder) pool() Pool {
	p := Pool{Devices: map[string]Device{}}
	c := &counters{}
	if b.options.Counters {
		c = share(b.units)
	}
	for sets := range slices.Chunk(c.shared(), resourceapi.ResourceSliceMaxCounterSets) {
		p.Slices = append(p.Slices, Slice{SharedCounters: sets})
	}
	taken := b.claimed(c)
	var leftOut []string
	for _, items := range cut(b.units) {
		var s Slice
		for i := range items {
			d := b.device(&items[i], c, taken)
			if len(d.Taints) > 0 && !b.options.Taints {
				leftOut = append(leftOut, d.Name)
				continue
			}
			p.Devices[d.Name] = items[i].Device
			s.Devices = append(s.Devices, d)
		}
		if len(s.Devices) > 0 {
			p.Slices = append(p.Slices, s)
		}
	}
	if len(leftOut) > 0 {
		b.note("%s: left out until healthy and free: the cluster has no taints for devices", names(leftOut))
	}
	p.Notes = b.notes
	return p
}

// device returns a device in its published form.
func (b *builder) device(i *item, c *counters, taken claimed) resourceapi.Device {
	return resourceapi.Device{
		Name: i.Name, Attributes: b.attributes(i), Capacity: capacity(i), ConsumesCounters: c.consumed(i),
		Taints: taints(i, b.inUseBy(i, c, taken)),
	}
}

// cut splits the devices into the fewest slices that keep related devices together.
func cut(units [][]item) (all [][]item) {
	var last []item
	for _, unit := range units {
		if len(last) > 0 && len(last)+len(unit) > most {
			all, last = append(all, last), nil
		}
		for part := range slices.Chunk(unit, most) {
			if len(last)+len(part) > most {
				all, last = append(all, last), nil
			}
			last = append(last, part...)
		}
	}
	if len(last) > 0 {
		all = append(all, last)
	}
	for _, items := range all {
		slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.rank, b.rank) })
	}
	return all
}
