// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"math/bits"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Devices has the devices of a node's resources at fixed numbers, so that each set of devices is a [Set] of
// bits. Devices never change and may be shared.
type Devices struct {
	Resources []ResourceDevices
	OfKind    [2]Set // all GPUs, all VFs

	words   int
	devices []placement.Device // by number
	numbers map[string]int     // of the devices, by ID
	index   map[string]int     // of the resources, by name
}

// ResourceDevices are the devices of a resource of a node. Their numbers are First to First+Count-1, in the
// order of the announcement.
type ResourceDevices struct {
	Name         string
	Kind         model.Kind
	First, Count int
	All          Set
	Hinted       bool          // the kubelet knows the NUMA node of some device
	On           []Set         // devices by the NUMA node that the kubelet knows
	Total        model.PerNode // the sizes of On
}

// NewDevices returns the devices of a node with these resources, healthy or not. The kubelet supports NUMA
// nodes up to number 63; a device on a higher NUMA node counts as a device without a NUMA node.
func NewDevices(announced []model.Resource) *Devices {
	n := &Devices{index: make(map[string]int, len(announced)), numbers: map[string]int{}}
	for _, a := range announced {
		n.words += (len(a.Devices) + 63) / 64
	}
	n.devices = make([]placement.Device, 64*n.words)
	n.OfKind = [2]Set{n.NewSet(), n.NewSet()}
	first := 0
	for i, a := range announced {
		n.index[a.Name] = i
		n.Resources = append(n.Resources, n.newResource(a, first))
		n.OfKind[a.Kind].Include(n.Resources[i].All)
		first += (len(a.Devices) + 63) / 64 * 64
	}
	return n
}

func (n *Devices) newResource(a model.Resource, first int) ResourceDevices {
	r := ResourceDevices{Name: a.Name, Kind: a.Kind, First: first, Count: len(a.Devices), All: n.NewSet()}
	for i, d := range a.Devices {
		n.devices[first+i] = d.Device
		n.numbers[d.ID] = first + i
		r.All.Insert(first + i)
		number, known := d.NUMA.Number()
		if !known || number > 63 {
			continue
		}
		for len(r.On) <= number {
			r.On, r.Total = append(r.On, n.NewSet()), append(r.Total, 0)
		}
		r.On[number].Insert(first + i)
		r.Total[number]++
		r.Hinted = true
	}
	return r
}

// NewSet returns an empty set.
func (n *Devices) NewSet() Set { return make(Set, n.words) }

// NewSets returns empty sets.
func (n *Devices) NewSets(count int) []Set {
	words, sets := make(Set, count*n.words), make([]Set, count)
	for i := range sets {
		sets[i] = words[i*n.words : (i+1)*n.words : (i+1)*n.words]
	}
	return sets
}

// Resource returns the number of a resource; false if the node lacks the resource.
func (n *Devices) Resource(name string) (int, bool) {
	i, ok := n.index[name]
	return i, ok
}

// Select returns the devices with these IDs, and ignores unknown IDs.
func (n *Devices) Select(ids []string) Set {
	s := n.NewSet()
	for _, id := range ids {
		if i, known := n.numbers[id]; known {
			s.Insert(i)
		}
	}
	return s
}

// Chosen returns the devices of a choice.
func (n *Devices) Chosen(choice placement.Choice) Set {
	s := n.NewSet()
	for _, list := range [...][]placement.Device{choice.GPUs, choice.VFs} {
		for _, d := range list {
			if i, known := n.numbers[d.ID]; known {
				s.Insert(i)
			}
		}
	}
	return s
}

// Devices lists the devices of a set, ascending.
func (n *Devices) Devices(of Set) []placement.Device {
	list := make([]placement.Device, 0, of.Len())
	of.Each(func(i int) { list = append(list, n.devices[i]) })
	return list
}

// Split lists the devices of a set by kind, ascending.
func (n *Devices) Split(of Set) placement.Devices {
	return placement.Devices{
		GPUs: n.Devices(of.Intersection(n.OfKind[model.GPU])), VFs: n.Devices(of.Intersection(n.OfKind[model.VF])),
	}
}

// NUMANodes returns the NUMA nodes of devices, as known by the kubelet.
func (n *Devices) NUMANodes(of Set) model.Mask {
	var nodes model.Mask
	for i := range n.Resources {
		nodes |= n.Resources[i].numaNodes(of)
	}
	return nodes
}

func (r *ResourceDevices) numaNodes(of Set) model.Mask {
	var nodes model.Mask
	for number, on := range r.On {
		if of.Common(on) > 0 {
			nodes |= 1 << number
		}
	}
	return nodes
}

// Aligned returns the free devices on these NUMA nodes (filterByAffinity); none without NUMA nodes.
func (r *ResourceDevices) Aligned(free Set, nodes model.Mask) Set {
	aligned := make(Set, len(free))
	for number, on := range r.On {
		if nodes>>number&1 == 1 {
			aligned.Include(on)
		}
	}
	for i := range aligned {
		aligned[i] &= free[i]
	}
	return aligned
}

// Available returns the devices that the kubelet offers a container on these NUMA nodes: devices on the
// nodes, and devices without a NUMA node. Without NUMA nodes, all devices are available.
func (r *ResourceDevices) Available(of Set, nodes model.Mask) Set {
	available := of.Intersection(r.All)
	for number, on := range r.On {
		if nodes != 0 && nodes>>number&1 == 0 {
			available.Exclude(on)
		}
	}
	return available
}

// Demand returns the input of the Topology Manager for a container that requests count devices. The set free
// contains the allocatable devices, the set reused the devices that init containers of the pod have left
// (generateDeviceTopologyHints).
func (r *ResourceDevices) Demand(count int, free, reused Set) model.Demand {
	d := model.Demand{Count: count, Named: true, All: r.Total, Free: make(model.PerNode, len(r.On))}
	for number, on := range r.On {
		d.Free[number] = free.Common(on)
	}
	if reused.Common(r.All) == 0 {
		return d
	}
	d.Reused = make(model.PerNode, len(r.On))
	for number, on := range r.On {
		d.Reused[number] = reused.Common(on)
		d.Free[number] += d.Reused[number]
	}
	return d
}

// Count returns the number of devices of a kind that requests name.
func (n *Devices) Count(list model.Requests, kind model.Kind) int {
	count := 0
	for _, r := range list {
		if n.Resources[r.Resource].Kind == kind {
			count += r.Count
		}
	}
	return count
}

// Pairs returns the number of pairs that requests can make.
func (n *Devices) Pairs(list model.Requests) int {
	return min(n.Count(list, model.GPU), n.Count(list, model.VF))
}

// Set is a set of a node's devices, a bit for each. The first device of each resource begins a word. The nil
// set is empty, but cannot be changed.
type Set []uint64

// Has reports whether the set has a device.
func (s Set) Has(i int) bool { return s[i>>6]>>(i&63)&1 == 1 }

// Insert adds a device.
func (s Set) Insert(i int) { s[i>>6] |= 1 << (i & 63) }

// InsertRange adds the devices from first to last.
func (s Set) InsertRange(first, last int) {
	for w := first >> 6; w <= last>>6; w++ {
		s[w] |= wordRange(w, first, last)
	}
}

// DeleteRange removes the devices from first to last.
func (s Set) DeleteRange(first, last int) {
	for w := first >> 6; w <= last>>6; w++ {
		s[w] &^= wordRange(w, first, last)
	}
}

// wordRange returns the bits from first to last that are in one word.
func wordRange(word, first, last int) uint64 {
	from, to := max(first-word<<6, 0), min(last-word<<6, 63)
	return ^uint64(0) << from & (^uint64(0) >> (63 - to))
}

// Len returns the number of devices.
func (s Set) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Common returns the number of devices that are in both sets.
func (s Set) Common(t Set) int {
	n := 0
	for i := range min(len(s), len(t)) {
		n += bits.OnesCount64(s[i] & t[i])
	}
	return n
}

// Include adds the devices of t.
func (s Set) Include(t Set) {
	for i, w := range t {
		s[i] |= w
	}
}

// Exclude removes the devices of t.
func (s Set) Exclude(t Set) {
	for i, w := range t {
		s[i] &^= w
	}
}

// Intersection returns a new set with the devices that are in both sets.
func (s Set) Intersection(t Set) Set {
	c := make(Set, max(len(s), len(t)))
	for i := range min(len(s), len(t)) {
		c[i] = s[i] & t[i]
	}
	return c
}

// Difference returns a new set without the devices of t.
func (s Set) Difference(t Set) Set {
	c := make(Set, max(len(s), len(t)))
	copy(c, s)
	c.Exclude(t)
	return c
}

// Clone returns a copy.
func (s Set) Clone() Set { return slices.Clone(s) }

// Equal reports whether two sets of one node have the same devices.
func (s Set) Equal(t Set) bool { return slices.Equal(s, t) }

// Each visits the devices, ascending.
func (s Set) Each(visit func(int)) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			visit(i<<6 + bits.TrailingZeros64(w))
		}
	}
}

// Lowest returns the first devices of a set: count of them, or all if there are fewer.
func (s Set) Lowest(count int) Set {
	lowest := make(Set, len(s))
	s.Each(func(i int) {
		if count > 0 {
			lowest.Insert(i)
			count--
		}
	})
	return lowest
}
