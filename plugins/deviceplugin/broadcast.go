package deviceplugin

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// broadcast holds the newest device list. Every reader sees the newest one; lists in between may be skipped.
type broadcast struct {
	mu        sync.Mutex
	devices   map[string]Device
	published bool
	changed   chan struct{} // closed by the next publish
}

// newBroadcast starts with the devices that the kubelet was told of before this process started.
func newBroadcast(before []Device) *broadcast {
	b := &broadcast{devices: make(map[string]Device, len(before)), changed: make(chan struct{})}
	for _, d := range before {
		b.devices[d.ID] = d
	}
	return b
}

// publish replaces the list. A device that was in it before and is no longer stays as unhealthy: from 1.34 on the
// kubelet's process dies when a device that a container holds vanishes (pkg/kubelet/cm/devicemanager/manager.go,
// allDevices is looked up without a check).
func (b *broadcast) publish(devices []Device) {
	b.mu.Lock()
	defer b.mu.Unlock()
	newest := make(map[string]Device, max(len(devices), len(b.devices)))
	for _, d := range b.devices {
		d.Healthy = false
		newest[d.ID] = d
	}
	for _, d := range devices {
		d.Nodes = slices.Clone(d.Nodes)
		newest[d.ID] = d
	}
	b.devices, b.published = newest, true
	close(b.changed)
	b.changed = make(chan struct{})
}

// latest returns the newest list sorted by ID, whether there is one yet, and a channel that is closed once it is no
// longer the newest.
func (b *broadcast) latest() (list *v1beta1.ListAndWatchResponse, published bool, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list = &v1beta1.ListAndWatchResponse{Devices: make([]*v1beta1.Device, 0, len(b.devices))}
	for _, d := range slices.SortedFunc(maps.Values(b.devices), func(d, e Device) int { return cmp.Compare(d.ID, e.ID) }) {
		list.Devices = append(list.Devices, wireDevice(d))
	}
	return list, b.published, b.changed
}

// wireDevice translates a device. One without NUMA nodes has no topology at all: any TopologyInfo, even one with node
// -1, makes the Topology Manager refuse the pod under restricted (pkg/kubelet/cm/devicemanager/topology_hints.go).
func wireDevice(d Device) *v1beta1.Device {
	wire := &v1beta1.Device{ID: d.ID, Health: v1beta1.Unhealthy}
	if d.Healthy {
		wire.Health = v1beta1.Healthy
	}
	if len(d.Nodes) > 0 {
		wire.Topology = &v1beta1.TopologyInfo{}
	}
	for _, node := range d.Nodes {
		wire.Topology.Nodes = append(wire.Topology.Nodes, &v1beta1.NUMANode{ID: int64(node)})
	}
	return wire
}
