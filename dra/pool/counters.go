package pool

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// counters say what devices have in common, so that no two of them are allocated that share a GPU or a VF:
// each has one counter of value 1, and a device takes all of its own.
type counters struct {
	set   map[string]string // by counter, which is named after the GPU or VF
	sets  []string          // in order
	count map[string]int    // counters of a set
}

// share finds what needs a counter: GPUs that are in several devices, and VFs that are in several which have
// no GPU in common that keeps them apart.
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
	for _, bundles := range []bool{true, false} { // what a bundle takes has to be in two sets at the most
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

// add puts counters that belong together into one set, a new one where the last of the kind has no room.
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

// shared are the counter sets.
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

// of names the counters that a device takes.
func (c *counters) of(i *item) (names []string) {
	for _, gpu := range i.gpus {
		names = append(names, gpuCounter(gpu))
	}
	for _, vf := range i.vfs {
		names = append(names, vfCounter(vf))
	}
	return slices.DeleteFunc(names, func(name string) bool { return c.set[name] == "" })
}

// consumed is what a device takes.
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

// each calls do for every device.
func each(units [][]item, do func(*item)) {
	for _, unit := range units {
		for i := range unit {
			do(&unit[i])
		}
	}
}
