// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// counters prevent the allocation of two devices that share a GPU or a VF: each shared GPU and VF has one
// counter of value 1, and a device consumes all counters of its parts.
type counters struct {
	set   map[string]string // by counter, which is named after the GPU or VF
	sets  []string          // in order
	count map[string]int    // number of counters of a set
}

// share finds the parts that need a counter: GPUs in several devices, and VFs in several devices without a
// common GPU.
func share(units [][]item) *counters {
	devices, gpuOf, apart := map[string]int{}, map[string]string{}, map[string]bool{}
	each(units, func(i *item) {
		for _, gpu := range i.gpus {
			devices[gpuCounter(gpu)]++
		}
		for k, vf := range i.vfs {
			name := vfCounter(vf)
			gpu := ""
			if k < len(i.gpus) {
				gpu = gpuCounter(i.gpus[k])
			}
			if first, seen := gpuOf[name]; seen && (gpu == "" || first != gpu) {
				apart[name] = true
			}
			gpuOf[name] = gpu
		}
	})
	c := &counters{set: map[string]string{}, count: map[string]int{}}
	for _, bundles := range []bool{true, false} { // a bundle's counters must be in at most two sets
		each(units, func(i *item) {
			if (i.Type == Bundle) != bundles {
				return
			}
			var gpus, vfs []string
			for _, gpu := range i.gpus {
				if name := gpuCounter(gpu); devices[name] > 1 {
					gpus = append(gpus, name)
				}
			}
			for _, vf := range i.vfs {
				if name := vfCounter(vf); apart[name] {
					vfs = append(vfs, name)
				}
			}
			c.add("gpus", gpus)
			c.add("vfs", vfs)
		})
	}
	return c
}

// add assigns related counters to one set, or to a new set if the last set of the kind has no room.
func (c *counters) add(kind string, names []string) {
	var added []string
	for _, name := range names {
		if c.set[name] == "" {
			added = append(added, name)
		}
	}
	if len(added) == 0 {
		return
	}
	last := ""
	number := 0
	for _, set := range c.sets {
		if set[:len(kind)] == kind {
			last = set
			number++
		}
	}
	if last == "" || c.count[last]+len(added) > resourceapi.ResourceSliceMaxCountersPerCounterSet {
		last = fmt.Sprintf("%s-%d", kind, number)
		c.sets = append(c.sets, last)
	}
	for _, name := range added {
		c.set[name] = last
		c.count[last]++
	}
}

// shared returns the counter sets.
func (c *counters) shared() []resourceapi.CounterSet {
	sets := make([]resourceapi.CounterSet, 0, len(c.sets))
	for _, set := range c.sets {
		sets = append(sets, resourceapi.CounterSet{Name: set, Counters: map[string]resourceapi.Counter{}})
		for name, in := range c.set {
			if in == set {
				sets[len(sets)-1].Counters[name] = one()
			}
		}
	}
	return sets
}

// of returns the counters that a device consumes.
func (c *counters) of(i *item) (names []string) {
	for _, gpu := range i.gpus {
		names = append(names, gpuCounter(gpu))
	}
	for _, vf := range i.vfs {
		names = append(names, vfCounter(vf))
	}
	return slices.DeleteFunc(names, func(name string) bool { return c.set[name] == "" })
}

// consumed returns the counter consumption of a device.
func (c *counters) consumed(i *item) []resourceapi.DeviceCounterConsumption {
	bySet := map[string]map[string]resourceapi.Counter{}
	for _, name := range c.of(i) {
		set := c.set[name]
		if bySet[set] == nil {
			bySet[set] = map[string]resourceapi.Counter{}
		}
		bySet[set][name] = one()
	}
	var consumed []resourceapi.DeviceCounterConsumption
	for _, set := range c.sets {
		if bySet[set] != nil {
			consumed = append(consumed, resourceapi.DeviceCounterConsumption{CounterSet: set, Counters: bySet[set]})
		}
	}
	return consumed
}

func one() resourceapi.Counter { return resourceapi.Counter{Value: resource.MustParse("1")} }
