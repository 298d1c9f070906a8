// SPDX-License-Identifier: Apache-2.0

// Package resources is what plugins have announced: the resources of a node with their devices.
package resources

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
)

// How much plugins may announce. The largest nodes known have 63 GPU partitions and some hundred VFs, but
// eight GPUs that 2,000 containers share each are 16,000 devices.
const (
	MaxDevices   = 1 << 14 // of one resource
	MaxResources = 64
)

// Set are the resources of a node by name. It never changes: an announcement makes a new one.
type Set map[string]*Resource

// Resource is what its plugin announced of one resource name. It never changes.
type Resource struct {
	Name    string
	Kind    device.Kind
	Devices map[string]device.Device // by ID
	Links   []topology.Link
	Joined  bool // the plugin is connected now
	// the devices are those of an earlier server; the plugin has announced nothing to this server so far
	Restored bool

	ordered []device.Device // Devices by address and ID
	saved   json.RawMessage // the same as they are written down
}

// New makes a resource.
func New(name string, kind device.Kind, devices []device.Device) *Resource {
	r := &Resource{Name: name, Kind: kind, Devices: make(map[string]device.Device, len(devices))}
	for _, d := range devices {
		r.Devices[d.ID] = d
	}
	r.ordered = slices.SortedFunc(maps.Values(r.Devices), device.Compare)
	r.saved = saveDevices(r.ordered)
	return r
}

// Announce returns the set with what a plugin announces of a resource. A device that is announced no more
// stays, unhealthy, while somebody holds it: the container lives on, and the kubelet must not see the device
// vanish when the plugin starts anew. Announce fails where there are too many resources.
func (s Set) Announce(
	name string, kind device.Kind, a device.Announcement, held func(id string) bool,
) (Set, error) {
	before := s[name]
	if before == nil && len(s) >= MaxResources {
		return s, fmt.Errorf("announce %s: there are %d resources already", name, len(s))
	}
	announced := map[string]bool{}
	for _, d := range a.Devices {
		announced[d.ID] = true
	}
	all := slices.Clone(a.Devices)
	if before != nil {
		for _, d := range before.ordered {
			if d.Healthy = false; !announced[d.ID] && held(d.ID) && len(all) < MaxDevices {
				all = append(all, d)
			}
		}
	}
	r := New(name, kind, all)
	r.Links, r.Joined = a.Links, true
	return s.with(r).withdraw(name), nil
}

// withdraw returns the set in which no device is healthy of other resources of a resource's kind whose plugin
// is gone: a plugin of the kind is there, and announces what there is. It may have other names for it now.
func (s Set) withdraw(name string) Set {
	for _, r := range s.OfKind(s[name].Kind) {
		if r.Joined || !slices.ContainsFunc(r.ordered, func(d device.Device) bool { return d.Healthy }) {
			continue
		}
		devices := slices.Clone(r.ordered)
		for i := range devices {
			devices[i].Healthy = false
		}
		gone := New(r.Name, r.Kind, devices)
		gone.Links = r.Links
		s = s.with(gone)
	}
	return s
}

// Leave returns the set in which the plugin of a resource is gone. Its devices stay known: it usually comes
// back.
func (s Set) Leave(name string) Set {
	if s[name] == nil {
		return s
	}
	left := *s[name]
	left.Joined = false
	return s.with(&left)
}

func (s Set) with(r *Resource) Set {
	next := maps.Clone(s)
	if next == nil {
		next = Set{}
	}
	next[r.Name] = r
	return next
}

// All lists the resources by name.
func (s Set) All() []*Resource {
	all := make([]*Resource, 0, len(s))
	for _, name := range slices.Sorted(maps.Keys(s)) {
		all = append(all, s[name])
	}
	return all
}

// OfKind lists the resources of a kind, by name.
func (s Set) OfKind(kind device.Kind) []*Resource {
	return slices.DeleteFunc(s.All(), func(r *Resource) bool { return r.Kind != kind })
}

// OfDevice finds the resource that a device ID belongs to, other than one; IDs are unique on a node.
func (s Set) OfDevice(id, other string) string {
	for _, r := range s.All() {
		if _, ok := r.Devices[id]; ok && r.Name != other {
			return r.Name
		}
	}
	return ""
}

// Restored reports whether a plugin known to an earlier server has announced nothing so far.
func (s Set) Restored() bool {
	for _, r := range s {
		if r.Restored {
			return true
		}
	}
	return false
}

// Only returns the devices of resources of this set, and nil for none.
func (s Set) Only(devices kubelet.Devices) (ours kubelet.Devices) {
	for name, ids := range devices {
		if s[name] != nil && len(ids) > 0 {
			if ours == nil {
				ours = kubelet.Devices{}
			}
			ours[name] = ids
		}
	}
	return ours
}

// Held lists devices of a kind by address and ID.
func (s Set) Held(devices kubelet.Devices, kind device.Kind) (held []device.Device) {
	for name, ids := range devices {
		if r := s[name]; r != nil && r.Kind == kind {
			held = append(held, r.Select(ids)...)
		}
	}
	slices.SortFunc(held, device.Compare)
	return held
}

// Paired lists devices of several resources by address, those that are not announced left out.
func (s Set) Paired(devices kubelet.Devices) (all []pairs.Device) {
	for name, ids := range devices {
		if r := s[name]; r != nil {
			for _, d := range r.Select(ids) {
				all = append(all, pairs.Device{Device: d, Resource: name, Kind: r.Kind})
			}
		}
	}
	slices.SortFunc(all, func(a, b pairs.Device) int { return device.Compare(a.Device, b.Device) })
	return all
}

// Addresses lists the cards of a kind, ascending.
func (s Set) Addresses(kind device.Kind) (addresses []topology.Address) {
	for _, r := range s.OfKind(kind) {
		for _, d := range r.ordered {
			addresses = append(addresses, d.Address)
		}
	}
	slices.SortFunc(addresses, topology.Address.Compare)
	return slices.Compact(addresses)
}

// Nodes are the NUMA nodes of devices as told to the kubelet, those unknown left out.
func (s Set) Nodes(name string, ids []string) map[int]bool {
	nodes := map[int]bool{}
	if r := s[name]; r != nil {
		for _, id := range ids {
			if node, known := r.Devices[id].NUMA.Number(); known {
				nodes[node] = true
			}
		}
	}
	return nodes
}

// SameNodes reports whether devices can belong to a container that has others, as far as NUMA tells: the
// Topology Manager gives all resources of a container that have TopologyInfo the same nodes, so sets with no
// node in common are of two containers.
func (s Set) SameNodes(has kubelet.Devices, name string, ids []string) bool {
	mine := s.Nodes(name, ids)
	for other, held := range has {
		theirs := s.Nodes(other, held)
		if len(mine) > 0 && len(theirs) > 0 && !intersect(mine, theirs) {
			return false
		}
	}
	return true
}

func intersect(a, b map[int]bool) bool {
	for n := range a {
		if b[n] {
			return true
		}
	}
	return false
}

// Device is a device by ID; one that was never announced, or no longer is, has an ID alone.
func (r *Resource) Device(id string) device.Device {
	if d, ok := r.Devices[id]; ok {
		return d
	}
	return device.Device{ID: id}
}

// Select lists devices by ID; none of a resource that is nil.
func (r *Resource) Select(ids []string) (devices []device.Device) {
	if r == nil {
		return nil
	}
	for _, id := range ids {
		devices = append(devices, r.Device(id))
	}
	return devices
}

// Ordered lists all devices by address and ID. It is not to be changed.
func (r *Resource) Ordered() []device.Device {
	if r == nil {
		return nil
	}
	return r.ordered
}
