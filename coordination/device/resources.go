// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Limits of announcements. The largest known nodes have 63 GPU partitions and some hundred VFs, but eight
// GPUs with 2,000 replicas each are 16,000 devices.
const (
	MaxDevices   = 1 << 14 // of one resource
	MaxResources = 64
)

// Resources are the announced resources of a node, by name. Resources are immutable: each announcement
// creates new ones.
type Resources map[string]*Resource

// Resource is the announcement of one resource name. A Resource is immutable.
type Resource struct {
	Name    string
	Kind    Kind
	Devices map[string]Device // by ID
	Links   []topology.Link
	// Replicas is the rule for shared devices.
	Replicas Replicas
	Hints    string // see [Announcement]
	Joined   bool   // the plugin is connected
	// the devices are those of an earlier server; the plugin has announced nothing to this server so far
	Restored bool

	units   map[string]string // the names of units, by ID without the number of a replica
	ordered []Device          // by address and ID
	saved   json.RawMessage   // the written form of ordered
}

// NewResource returns a resource.
func NewResource(name string, kind Kind, devices []Device) *Resource {
	r := &Resource{
		Name: name, Kind: kind, Devices: make(map[string]Device, len(devices)), units: map[string]string{},
	}
	for _, d := range devices {
		d = d.Complete()
		original, _ := topology.CutReplica(d.ID)
		r.Devices[d.ID], r.units[original] = d, d.Unit.Name
	}
	r.ordered = slices.SortedFunc(maps.Values(r.Devices), Compare)
	r.saved = saveDevices(r.ordered)
	return r
}

// Announce returns the set with a plugin's announcement of a resource. Returns an error beyond MaxResources.
func (s Resources) Announce(name string, kind Kind, a Announcement) (Resources, error) {
	if s[name] == nil && len(s) >= MaxResources {
		return s, fmt.Errorf("announce %s: there are %d resources already", name, len(s))
	}
	r := NewResource(name, kind, a.Devices)
	r.Links, r.Replicas, r.Hints, r.Joined = a.Links, a.Replicas, a.Hints, true
	return s.with(r).withdraw(name), nil
}

// withdraw returns the set with unhealthy devices for disconnected resources of the same kind as a resource:
// the connected plugin announces all devices of the kind, maybe under new names.
func (s Resources) withdraw(name string) Resources {
	for _, r := range s.OfKind(s[name].Kind) {
		if r.Joined || !slices.ContainsFunc(r.ordered, func(d Device) bool { return d.Healthy }) {
			continue
		}
		devices := slices.Clone(r.ordered)
		for i := range devices {
			devices[i].Healthy, devices[i].Reason = false, ""
		}
		gone := NewResource(r.Name, r.Kind, devices)
		gone.Links = r.Links
		s = s.with(gone)
	}
	return s
}

// Leave returns the set after the plugin of a resource has disconnected. The devices remain known, since
// plugins usually reconnect.
func (s Resources) Leave(name string) Resources {
	if s[name] == nil {
		return s
	}
	left := *s[name]
	left.Joined = false
	return s.with(&left)
}

func (s Resources) with(r *Resource) Resources {
	next := maps.Clone(s)
	if next == nil {
		next = Resources{}
	}
	next[r.Name] = r
	return next
}

// Save returns the written form of a set.
func (s Resources) Save() (saved []SavedResource) {
	for _, r := range s.All() {
		saved = append(saved, SavedResource{r.Name, r.Kind, r.saved})
	}
	return saved
}

// RestoreResources returns saved resources. Resources are disconnected and devices unhealthy until the
// plugins announce.
func RestoreResources(saved []SavedResource) (Resources, error) {
	s := Resources{}
	for _, of := range saved {
		devices, err := of.restore()
		if err != nil {
			return nil, err
		}
		if len(devices) > MaxDevices {
			return nil, fmt.Errorf("%d devices of %s, more than %d", len(devices), of.Name, MaxDevices)
		}
		s[of.Name] = NewResource(of.Name, of.Kind, devices)
		s[of.Name].Restored = true
	}
	if len(s) > MaxResources {
		return nil, fmt.Errorf("%d resources, more than %d", len(s), MaxResources)
	}
	return s, nil
}

// All returns the resources by name.
func (s Resources) All() []*Resource {
	all := make([]*Resource, 0, len(s))
	for _, name := range slices.Sorted(maps.Keys(s)) {
		all = append(all, s[name])
	}
	return all
}

// OfKind returns the resources of a kind, by name.
func (s Resources) OfKind(kind Kind) []*Resource {
	return slices.DeleteFunc(s.All(), func(r *Resource) bool { return r.Kind != kind })
}

// UnitOf returns the unit of a device of any resource: as announced or, for an earlier name of the resource
// and for other plugins, as announced for a device with this ID, else by the ID.
func (s Resources) UnitOf(resource, id string) topology.Unit {
	if r := s[resource]; r != nil {
		if d, announced := r.Devices[id]; announced {
			return d.Unit
		}
	}
	original, shared := topology.CutReplica(id)
	for _, r := range s {
		if name, announced := r.units[original]; announced {
			return topology.Unit{Name: name, Shared: shared}
		}
	}
	return topology.UnitOfID(id)
}

// OfDevice returns the resource that offers a device ID, except one resource. A device that is not healthy
// can have the ID under an earlier name.
func (s Resources) OfDevice(id, other string) string {
	for _, r := range s.All() {
		if r.Devices[id].Healthy && r.Name != other {
			return r.Name
		}
	}
	return ""
}

// Restored reports whether a plugin known to an earlier server has announced nothing so far.
func (s Resources) Restored() bool {
	for _, r := range s {
		if r.Restored {
			return true
		}
	}
	return false
}

// Only returns the devices of the resources of this set, nil for none.
func (s Resources) Only(devices map[string][]string) (ours map[string][]string) {
	for name, ids := range devices {
		if s[name] != nil && len(ids) > 0 {
			if ours == nil {
				ours = map[string][]string{}
			}
			ours[name] = ids
		}
	}
	return ours
}

// Held returns the devices of a kind by address and ID.
func (s Resources) Held(devices map[string][]string, kind Kind) (held []Device) {
	for name, ids := range devices {
		if r := s[name]; r != nil && r.Kind == kind {
			held = append(held, r.Select(ids)...)
		}
	}
	slices.SortFunc(held, Compare)
	return held
}

// Addresses returns the addresses of a kind, ascending.
func (s Resources) Addresses(kind Kind) (addresses []topology.Address) {
	for _, r := range s.OfKind(kind) {
		for _, d := range r.ordered {
			addresses = append(addresses, d.Address)
		}
	}
	slices.SortFunc(addresses, topology.Address.Compare)
	return slices.Compact(addresses)
}

// Nodes returns the known NUMA nodes of devices, as announced to the kubelet.
func (s Resources) Nodes(name string, ids []string) map[int]bool {
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

// SameNodes reports whether the NUMA nodes permit devices in a container with other devices. The Topology
// Manager assigns the same nodes to all resources of a container with TopologyInfo, so disjoint sets of nodes
// belong to two containers.
func (s Resources) SameNodes(has map[string][]string, name string, ids []string) bool {
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

// Device returns a device by ID; an unannounced device has only an ID.
func (r *Resource) Device(id string) Device {
	if d, ok := r.Devices[id]; ok {
		return d
	}
	return Device{ID: id}
}

// Select returns devices by ID, none for a nil resource.
func (r *Resource) Select(ids []string) (devices []Device) {
	if r == nil {
		return nil
	}
	for _, id := range ids {
		devices = append(devices, r.Device(id))
	}
	return devices
}

// Placed returns devices by ID for package placement.
func (r *Resource) Placed(ids []string) []placement.Device { return All(r.Select(ids)).Held }

// Ordered returns all devices by address and ID. The result must not be changed.
func (r *Resource) Ordered() []Device {
	if r == nil {
		return nil
	}
	return r.ordered
}

// Permit returns the free devices that the rule for shared devices permits.
func (r *Resource) Permit(held, free []string, size int) []string {
	return r.Replicas.Permit(slices.Collect(maps.Keys(r.Devices)), held, free, size)
}

// SavedResource is the written form of a resource, with the addresses of devices: a restarted plugin may not
// find a device any more.
type SavedResource struct {
	Name    string          `json:"name"`
	Kind    Kind            `json:"kind"`
	Devices json.RawMessage `json:"devices"` // a list of savedDevice
}

type savedDevice struct {
	ID      string            `json:"id"`
	Address string            `json:"address"`
	NUMA    topology.NUMANode `json:"numa,omitzero"`
	Unit    string            `json:"unit,omitempty"`
	Shared  bool              `json:"shared,omitempty"`
}

// saveDevices returns the written form of devices. The file is written far more often than devices are
// announced, so that each announcement is encoded once.
func saveDevices(devices []Device) json.RawMessage {
	saved := make([]savedDevice, 0, len(devices))
	for _, d := range devices {
		saved = append(saved, savedDevice{d.ID, d.Address.String(), d.NUMA, d.Unit.Name, d.Unit.Shared})
	}
	content, _ := json.Marshal(saved) // only strings and numbers
	return content
}

// restore returns the devices of a resource, none of them healthy.
func (s SavedResource) restore() (devices []Device, err error) {
	if s.Name == "" || (s.Kind != GPU && s.Kind != VF) {
		return nil, fmt.Errorf("resource %q of kind %q", s.Name, s.Kind)
	}
	var saved []savedDevice
	if err := json.Unmarshal(s.Devices, &saved); err != nil {
		return nil, fmt.Errorf("devices of %s: %w", s.Name, err)
	}
	for _, one := range saved {
		address, err := topology.ParseAddress(one.Address)
		if err != nil {
			return nil, fmt.Errorf("device %s of %s: %w", one.ID, s.Name, err)
		}
		devices = append(devices, Device{
			ID: one.ID, Address: address, NUMA: one.NUMA, Unit: topology.Unit{Name: one.Unit, Shared: one.Shared},
		})
	}
	return devices, nil
}
