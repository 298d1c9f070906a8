// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/inventory"
)

// maxDevices is the maximum number of devices of a slice, with or without taints: a slice without room for
// another taint would have to be split when a taint is needed, and meanwhile the whole pool would be
// unusable.
const maxDevices = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// Build returns the pool of a machine. Equal inputs give equal pools, in the same order.
func Build(machine inventory.Machine, options Options) Pool {
	b := newBuilder(machine, options)
	if options.Counters {
		b.addSharing()
	} else {
		b.addSingle()
	}
	b.addSurplus()
	if options.Counters {
		b.addBound()
	}
	return b.pool()
}

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
		if len(last) > 0 && len(last)+len(unit) > maxDevices {
			all, last = append(all, last), nil
		}
		for part := range slices.Chunk(unit, maxDevices) {
			if len(last)+len(part) > maxDevices {
				all, last = append(all, last), nil
			}
			last = append(last, part...)
		}
	}
	if len(last) > 0 {
		all = append(all, last)
	}
	isDegraded := func(i item) int { return min(len(degraded(&i)), 1) }
	for _, items := range all { // the scheduler takes the first device that fits
		slices.SortStableFunc(items, func(a, b item) int {
			return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(isDegraded(a), isDegraded(b)))
		})
	}
	return all
}

// ResourceSlices returns the objects of a pool as first published for a node. The controller of
// k8s.io/dynamic-resource-allocation, which publishes them, appends random suffixes to the names.
func (p Pool) ResourceSlices(node string) []resourceapi.ResourceSlice {
	count := int64(len(p.Slices))
	objects := make([]resourceapi.ResourceSlice, 0, len(p.Slices))
	for i, s := range p.Slices {
		objects = append(objects, resourceapi.ResourceSlice{
			TypeMeta:   metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%05d-%s-%s", i, node, Driver)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver:         Driver,
				Pool:           resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: count},
				NodeName:       &node,
				Devices:        s.Devices,
				SharedCounters: s.SharedCounters,
			},
		})
	}
	return objects
}
