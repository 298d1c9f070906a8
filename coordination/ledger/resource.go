package ledger

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Resource is what its plugin announced of one resource name. It never changes: an announcement makes a new
// one.
type Resource struct {
	Name    string
	Kind    device.Kind
	Devices map[string]device.Device // by ID
	ordered []device.Device          // the same, by address and ID
	Links   []topology.Link
	Joined  bool // the plugin is connected now

	saved json.RawMessage // the devices for the checkpoint
}

// Announce replaces what is known of a resource. A device that is announced no more stays while somebody
// holds it, unhealthy: the container lives on, and the kubelet must not see the device vanish when the plugin
// starts anew.
func (l *Ledger) Announce(name string, kind device.Kind, a device.Announcement) {
	r := &Resource{
		Name:    name,
		Kind:    kind,
		Devices: make(map[string]device.Device, len(a.Devices)),
		Links:   a.Links,
		Joined:  true,
	}
	if before := l.resources[name]; before != nil {
		for id, d := range before.Devices {
			if d.Healthy = false; l.holders[name][id] != nil && len(r.Devices) < MaxDevices {
				r.Devices[id] = d
			}
		}
	}
	for _, d := range a.Devices {
		r.Devices[d.ID] = d
	}
	r.ordered = slices.SortedFunc(maps.Values(r.Devices), device.Compare)
	r.saved = saveDevices(r.ordered)
	l.resources[name] = r
}

// Leave notes that a resource's plugin is gone. Its devices stay known: it usually comes back.
func (l *Ledger) Leave(name string) {
	if r := l.resources[name]; r != nil {
		left := *r
		left.Joined = false
		l.resources[name] = &left
	}
}

// Resource is what was announced under a name, nil for nothing: it is another plugin's.
func (l *Ledger) Resource(name string) *Resource { return l.resources[name] }

// Resources lists what was announced, by name.
func (l *Ledger) Resources() []*Resource {
	all := make([]*Resource, 0, len(l.resources))
	for _, name := range slices.Sorted(maps.Keys(l.resources)) {
		all = append(all, l.resources[name])
	}
	return all
}

// OfKind lists the resources of a kind, by name.
func (l *Ledger) OfKind(kind device.Kind) []*Resource {
	return slices.DeleteFunc(l.Resources(), func(r *Resource) bool { return r.Kind != kind })
}

// Device is a device by ID; one that was never announced, or no longer is, has an ID alone.
func (r *Resource) Device(id string) device.Device {
	if d, ok := r.Devices[id]; ok {
		return d
	}
	return device.Device{ID: id}
}

// Select lists devices by ID; none of a resource that is not ours.
func (r *Resource) Select(ids []string) []device.Device {
	if r == nil {
		return nil
	}
	var devices []device.Device
	for _, id := range ids {
		devices = append(devices, r.Device(id))
	}
	return devices
}

// Free lists a resource's healthy devices that are free, by address and ID; none of a resource that is not
// ours.
func (l *Ledger) Free(r *Resource) []device.Device {
	if r == nil {
		return nil
	}
	var free []device.Device
	for _, d := range r.ordered {
		if d.Healthy && l.IsFree(r.Name, d.ID) {
			free = append(free, d)
		}
	}
	return free
}

// FreeOn lists the free devices of a resource on NUMA nodes, those of unknown node included; all where there
// are no nodes.
func (l *Ledger) FreeOn(r *Resource, nodes map[int]bool) []placement.Device {
	var free []placement.Device
	for _, d := range l.Free(r) {
		if n, known := d.NUMA.Number(); !known || len(nodes) == 0 || nodes[n] {
			free = append(free, d.Placed())
		}
	}
	return free
}

// OnNodes lists the healthy devices of a kind on NUMA nodes, free ones and others; on all where there are no
// nodes.
func (l *Ledger) OnNodes(kind device.Kind, nodes map[int]bool) (free, taken []placement.Device) {
	for _, r := range l.OfKind(kind) {
		for id, d := range r.Devices {
			n, known := d.NUMA.Number()
			switch {
			case !d.Healthy || known && len(nodes) > 0 && !nodes[n]:
			case l.IsFree(r.Name, id):
				free = append(free, d.Placed())
			default:
				taken = append(taken, d.Placed())
			}
		}
	}
	return free, taken
}

// Beside lists all devices of a kind that are free, and all that others than one have.
func (l *Ledger) Beside(kind device.Kind, one *Allocation) (spare, taken []placement.Device) {
	for _, r := range l.OfKind(kind) {
		for _, d := range l.Free(r) {
			spare = append(spare, d.Placed())
		}
		for id, a := range l.holders[r.Name] {
			if a != one && !a.Doubtful {
				taken = append(taken, r.Device(id).Placed())
			}
		}
	}
	return spare, taken
}

// Nodes are the NUMA nodes of devices as told to the kubelet, those unknown left out.
func (l *Ledger) Nodes(name string, ids []string) map[int]bool {
	nodes := map[int]bool{}
	if r := l.resources[name]; r != nil {
		for _, id := range ids {
			if node, known := r.Devices[id].NUMA.Number(); known {
				nodes[node] = true
			}
		}
	}
	return nodes
}

// Demand is a number of devices of some resources as the Topology Manager looks at it.
func (l *Ledger) Demand(count int, of ...*Resource) hints.Demand {
	demand := hints.Demand{Count: count}
	for _, r := range of {
		for _, d := range r.Devices {
			demand.All.Add(d.NUMA)
		}
		for _, d := range l.Free(r) {
			demand.Free.Add(d.NUMA)
		}
	}
	return demand
}

// ResourceOf finds the resource that a device ID belongs to, other than one; IDs are unique on a node.
func (l *Ledger) ResourceOf(id, other string) string {
	for _, r := range l.Resources() {
		if _, ok := r.Devices[id]; ok && r.Name != other {
			return r.Name
		}
	}
	return ""
}
