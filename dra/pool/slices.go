package pool

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// most is how many devices a slice has, whether or not any has a taint now: a slice that could not take one
// more taint would have to be cut anew when one is needed, and the whole pool cannot be used meanwhile.
const most = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// pool writes down what was built.
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

// device is a device as it is published.
func (b *builder) device(i *item, c *counters, taken claimed) resourceapi.Device {
	return resourceapi.Device{
		Name: i.Name, Attributes: b.attributes(i), Capacity: capacity(i), ConsumesCounters: c.consumed(i),
		Taints: taints(i, b.inUseBy(i, c, taken)),
	}
}

// cut cuts the devices into as few slices as keep together what changes together.
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
