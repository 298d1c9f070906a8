// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/changes"
)

// broadcast holds the current device list. Every reader gets the current list; readers may skip intermediate
// lists.
type broadcast struct {
	mu        sync.Mutex
	devices   map[string]Device
	gone      map[string]time.Time // time since which a listed device is no longer published
	published bool
	changed   changes.Signal // raised by the next publish
	told      []fingerprint  // of the lists since the one that the kubelet last had, the newest last
}

// retireAfter is the minimum time for which a gone device stays listed. No Allocate that began while the
// device was healthy takes as long.
const retireAfter = 30 * time.Second

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

// newBroadcast starts with the devices that an earlier process reported to the kubelet.
func newBroadcast(before []Device) *broadcast {
	b := &broadcast{devices: make(map[string]Device, len(before)), gone: map[string]time.Time{}}
	for _, d := range before {
		b.devices[d.ID] = d
	}
	return b
}

// publish replaces the list. A device that was listed and is not in the new list stays listed as unhealthy
// until retire removes it.
func (b *broadcast) publish(devices []Device) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := make(map[string]Device, len(devices))
	for _, d := range devices {
		d.Nodes = slices.Clone(d.Nodes)
		found[d.ID] = d
	}
	gone := map[string]time.Time{}
	b.devices = Keep(b.devices, found, func(d Device) Device {
		d.Healthy = false
		gone[d.ID] = time.Now()
		if since, before := b.gone[d.ID]; before {
			gone[d.ID] = since
		}
		return d
	})
	b.gone, b.published = gone, true
	b.told = append(b.told, newFingerprint(b.healthy()))
	b.told = b.told[max(0, len(b.told)-mostTold):]
	b.renew()
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

// renew sends the list again. The mutex must be held.
func (b *broadcast) renew() {
	b.changed.Raise()
}

// hasGone reports whether the list contains devices that are no longer published.
func (b *broadcast) hasGone() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.gone) > 0
}

// retire removes devices that have been gone for retireAfter and that the kubelet does not need, and returns
// their IDs. If some of the gone devices remain, the list is sent again: the kubelet then writes its
// checkpoint, which it does not do when a pod ends.
func (b *broadcast) retire(needed map[string]bool) (retired []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, since := range b.gone {
		if !needed[id] && time.Since(since) >= retireAfter {
			delete(b.devices, id)
			delete(b.gone, id)
			retired = append(retired, id)
		}
	}
	b.renew()
	slices.Sort(retired)
	return retired
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
