// SPDX-License-Identifier: Apache-2.0

// Package pool computes the published devices of a node as a pure function of a Machine: the devices of
// the resource pool, their shared counters, and the ResourceSlices that contain them.
//
// The scheduler takes the first devices that fit and has no model of switches, so a pair is a device:
//
//	pair-11-00-0  ─┐ GPU 0000:11:00.0 and a VF of its switch that is reserved for it
//	gpu-11-00-0   ─┴─ one counter: the GPU alone
//	vf-0c-00-2        a VF that is reserved for no GPU
//
// This form is for switches with more VFs than GPUs. On other switches every combination of a GPU and a VF is
// a pair, named after both, and the VFs have counters too, so that both GPU-only and VF-only claims are
// possible. If there are more combinations than the scheduler can search, only some are pairs. On a cluster
// without counters a GPU with its VF is one device, allocated as a GPU or as a pair.
//
// Equal inputs give equal pools. A device is named after its PCI address: it keeps its name when other
// devices come and go. The order implements the objective of placement as far as an order can: pairs that are
// near each other are adjacent, GPUs without a remaining VF precede the others, and VFs alternate between
// PFs.
package pool

import (
	"cmp"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Driver is the name of the DRA driver and the domain of its attributes.
const Driver = "tandem.dev"

// Resource names that pods can request instead of a claim: the extendedResourceName of the device class. GPUs
// and VFs have the resource names of the device plugins.
const (
	PairResource   = Driver + "/pair"
	BundleResource = Driver + "/bundle"
)

// DefaultVFsPerPF is the default number of published VFs of a PF: each device costs the scheduler time, and a
// node runs some 110 pods.
const DefaultVFsPerPF = 16

// Options are the features of a cluster.
type Options struct {
	Counters bool // devices can share counters: PartitionableDevices, in Kubernetes 1.36 and later
	Taints   bool // devices can have taints (DeviceTaints, 1.36); otherwise such devices are omitted
	VFsPerPF int  // maximum number of VFs of a PF: usable ones first, with the lowest indexes; 0 for all
	// PairsAsVFs publishes the VFs of pairs with the VF's resource name for Multus, so that networks of the
	// device plugins need no change. Pods can then request pairs only by claims and not by PairResource,
	// because Multus requires the requested name.
	PairsAsVFs bool
	// Bound contains the IDs of the VFs that claims actually hold, by device: for a pair its VF, also if it
	// is the published one; for a GPU the VF that was assigned with it; for a VF the other VF that was
	// assigned in its place. None of them is published for other claims.
	Bound map[string]string
	// InUse maps the IDs of GPUs and VFs of claims to the devices through which the claims hold them. While
	// such a device is published, the scheduler avoids conflicting devices; if it is not published, devices
	// with the same GPU or VF have a taint.
	InUse map[string]string
	// WasSound contains the IDs of VFs that were healthy when they were published. If they fail they stay in
	// their pairs, which get a taint: another VF, which a claim may have been allocated by itself, moves into no
	// pair, the names of other devices stay, and only one slice changes. Other unhealthy VFs do not take the
	// place of usable ones.
	WasSound map[string]bool
}

// Type is the type of a pool device.
type Type string

// Types of devices.
const (
	TypeGPU    Type = "gpu"    // a GPU alone
	TypeVF     Type = "vf"     // a VF alone
	TypePair   Type = "pair"   // a GPU and a VF of its switch
	TypeGPUVF  Type = "gpu-vf" // a GPU with its VF, as a GPU or a pair, on clusters without shared counters
	TypeBundle Type = "bundle" // all partitions of a GPU, each with a VF if there are enough
)

// Device describes the parts of a pool device.
type Device struct {
	Name string // "pair-11-00-0", after the PCI address of its GPU, stable over restarts
	Type Type
	GPUs []string // device IDs of the machine
	VFs  []string // device IDs of the machine; the i-th belongs to the i-th GPU
}

// Pool is the published state of a node.
type Pool struct {
	Slices  []Slice           // in the order in which the scheduler must see them
	Devices map[string]Device // by name
	Notes   []string          // omitted devices and the reasons
}

// Slice is the content of one ResourceSlice: devices, or the counters that devices share.
type Slice struct {
	SharedCounters []resourceapi.CounterSet
	Devices        []resourceapi.Device
}

// maxDevices is the maximum number of devices of a slice, with or without taints: a slice without room for
// another taint would have to be split when a taint is needed, and meanwhile the whole pool would be
// unusable.
const maxDevices = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// Build returns the pool of a machine. Equal inputs give equal pools, in the same order.
func Build(machine Machine, options Options) Pool {
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
	return b.buildPool()
}

// buildPool returns the pool that was built.
func (b *builder) buildPool() Pool {
	p := Pool{Devices: map[string]Device{}}
	c := &counters{}
	if b.options.Counters {
		c = shareCounters(b.units)
	}
	for sets := range slices.Chunk(c.sharedSets(), resourceapi.ResourceSliceMaxCounterSets) {
		p.Slices = append(p.Slices, Slice{SharedCounters: sets})
	}
	taken := b.claimedParts(c)
	var leftOut []string
	for _, items := range cutSlices(b.units) {
		var s Slice
		for i := range items {
			i := &items[i]
			d := resourceapi.Device{
				Name: i.Name, Attributes: b.listAttributes(i), Capacity: memoryOf(i), ConsumesCounters: c.consumedBy(i),
				Taints: listTaints(i, b.inUseBy(i, c, taken)),
			}
			if len(d.Taints) > 0 && !b.options.Taints {
				leftOut = append(leftOut, d.Name)
				continue
			}
			p.Devices[d.Name] = i.Device
			s.Devices = append(s.Devices, d)
		}
		if len(s.Devices) > 0 {
			p.Slices = append(p.Slices, s)
		}
	}
	if len(leftOut) > 0 {
		b.addNote("%s: left out until healthy and free: the cluster has no taints for devices", joinNames(leftOut))
	}
	p.Notes = b.notes
	return p
}

// cutSlices splits the devices into the fewest slices that keep related devices together.
func cutSlices(units [][]item) (all [][]item) {
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
	isDegraded := func(i item) int { return min(len(degradedReason(&i)), 1) }
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

// counters prevent the allocation of two devices that share a GPU or a VF: each shared GPU and VF has one
// counter of value 1, and a device consumes all counters of its parts.
type counters struct {
	set   map[string]string // by counter, which is named after the GPU or VF
	sets  []string          // in order
	count map[string]int    // number of counters of a set
}

// shareCounters finds the parts that need a counter: GPUs in several devices, and VFs in several devices
// without a common GPU.
func shareCounters(units [][]item) *counters {
	devices, gpuOf, apart := map[string]int{}, map[string]string{}, map[string]bool{}
	eachItem(units, func(i *item) {
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
		eachItem(units, func(i *item) {
			if (i.Type == TypeBundle) != bundles {
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
			c.addSet("gpus", gpus)
			c.addSet("vfs", vfs)
		})
	}
	return c
}

// addSet assigns related counters to one set, or to a new set if the last set of the kind has no room.
func (c *counters) addSet(kind string, names []string) {
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

// sharedSets returns the counter sets.
func (c *counters) sharedSets() []resourceapi.CounterSet {
	sets := make([]resourceapi.CounterSet, 0, len(c.sets))
	for _, set := range c.sets {
		sets = append(sets, resourceapi.CounterSet{Name: set, Counters: map[string]resourceapi.Counter{}})
		for name, in := range c.set {
			if in == set {
				sets[len(sets)-1].Counters[name] = newCounter()
			}
		}
	}
	return sets
}

// countersOf returns the counters that a device consumes.
func (c *counters) countersOf(i *item) (names []string) {
	for _, gpu := range i.gpus {
		names = append(names, gpuCounter(gpu))
	}
	for _, vf := range i.vfs {
		names = append(names, vfCounter(vf))
	}
	return slices.DeleteFunc(names, func(name string) bool { return c.set[name] == "" })
}

// consumedBy returns the counter consumption of a device.
func (c *counters) consumedBy(i *item) []resourceapi.DeviceCounterConsumption {
	bySet := map[string]map[string]resourceapi.Counter{}
	for _, name := range c.countersOf(i) {
		set := c.set[name]
		if bySet[set] == nil {
			bySet[set] = map[string]resourceapi.Counter{}
		}
		bySet[set][name] = newCounter()
	}
	var consumed []resourceapi.DeviceCounterConsumption
	for _, set := range c.sets {
		if bySet[set] != nil {
			consumed = append(consumed, resourceapi.DeviceCounterConsumption{CounterSet: set, Counters: bySet[set]})
		}
	}
	return consumed
}

func newCounter() resourceapi.Counter { return resourceapi.Counter{Value: resource.MustParse("1")} }
