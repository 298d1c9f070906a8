// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// broadcast holds the current device list. Every reader gets the current list; readers may skip intermediate
// lists.
type broadcast struct {
	mu        sync.Mutex
	devices   map[string]Device
	published bool
	changed   system.Signal // raised by the next publish
	told      []fingerprint // of the lists since the one that the kubelet last had, the newest last
}

// fingerprint identifies the healthy devices of a list: a hash of their IDs.
type fingerprint [sha256.Size]byte

// mostTold limits the number of fingerprints of lists that the kubelet has not applied yet.
const mostTold = 1000

// standing describes which list the kubelet has applied.
type standing int

const (
	elsewhere standing = iota // the kubelet has an unknown list, or a list that must not be current
	behind                    // the kubelet has an earlier list
	upToDate                  // the kubelet has the current list
)

func newFingerprint(ids []string) fingerprint {
	return sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(ids)), "\x00")))
}

// publish replaces the list.
func (b *broadcast) publish(devices []Device) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.devices, b.published = make(map[string]Device, len(devices)), true
	for _, d := range devices {
		d.Nodes = slices.Clone(d.Nodes)
		b.devices[d.ID] = d
	}
	b.told = append(b.told, newFingerprint(b.healthy()))
	b.told = b.told[max(0, len(b.told)-mostTold):]
	b.changed.Raise()
}

// healthy returns the healthy devices of the current list. The mutex must be held.
func (b *broadcast) healthy() []string {
	var ids []string
	for id, d := range b.devices {
		if d.Healthy {
			ids = append(ids, id)
		}
	}
	return ids
}

// begin records that the kubelet applies lists from the beginning.
func (b *broadcast) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = []fingerprint{newFingerprint(nil), newFingerprint(b.healthy())}
}

// standing returns the standing of a kubelet with these allocatable devices. The kubelet applies lists in
// order, so it does not return to a list before the one that it has applied.
func (b *broadcast) standing(has []string) standing {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := newFingerprint(has)
	switch {
	case now == newFingerprint(b.healthy()):
		b.told = []fingerprint{now}
		return upToDate
	case slices.Contains(b.told, now):
		return behind
	default:
		return elsewhere
	}
}

// latest returns the current list sorted by ID, whether a list exists, and a channel that is closed when the
// list is no longer current.
func (b *broadcast) latest() (list *v1beta1.ListAndWatchResponse, published bool, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list = &v1beta1.ListAndWatchResponse{Devices: make([]*v1beta1.Device, 0, len(b.devices))}
	for _, d := range slices.SortedFunc(maps.Values(b.devices),
		func(d, e Device) int { return cmp.Compare(d.ID, e.ID) }) {
		list.Devices = append(list.Devices, wireDevice(d))
	}
	return list, b.published, b.changed.Next()
}

// wireDevice converts a device. A device without NUMA nodes has no topology: any TopologyInfo, even with node
// -1, makes the Topology Manager reject the pod under policy restricted
// (pkg/kubelet/cm/devicemanager/topology_hints.go).
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
