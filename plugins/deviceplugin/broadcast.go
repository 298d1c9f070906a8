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
)

// broadcast holds the newest device list. Every reader sees the newest one; lists in between may be skipped.
type broadcast struct {
	mu        sync.Mutex
	devices   map[string]Device
	gone      map[string]time.Time // since when devices of the list are no longer published
	published bool
	changed   chan struct{} // closed by the next publish
	told      []fingerprint // of the lists since the one that the kubelet last had, the newest last
}

// fingerprint is which devices of a list are healthy: a hash of their IDs.
type fingerprint [sha256.Size]byte

// mostTold bounds what is known of lists that the kubelet may yet have to take.
const mostTold = 1000

// standing is how far the kubelet is with the lists.
type standing int

const (
	elsewhere standing = iota // it has what it was never told, or no longer is to have
	behind                    // it has a list before the newest
	upToDate                  // it has the newest
)

func newFingerprint(ids []string) fingerprint {
	return sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(ids)), "\x00")))
}

// newBroadcast starts with the devices that the kubelet was told of before this process started.
func newBroadcast(before []Device) *broadcast {
	b := &broadcast{
		devices: make(map[string]Device, len(before)), gone: map[string]time.Time{}, changed: make(chan struct{}),
	}
	for _, d := range before {
		b.devices[d.ID] = d
	}
	return b
}

// publish replaces the list. A device that was in it before and no longer is stays, unhealthy, until retire.
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

// healthy are the healthy devices of the newest list. The mutex is held.
func (b *broadcast) healthy() []string {
	var ids []string
	for id, d := range b.devices {
		if d.Healthy {
			ids = append(ids, id)
		}
	}
	return ids
}

// begin says that the kubelet takes lists anew, from having none.
func (b *broadcast) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = []fingerprint{newFingerprint(nil), newFingerprint(b.healthy())}
}

// standing tells how far a kubelet is that has these devices to give. It takes the lists in their order, so
// that it will not come back to one before what it has had.
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

// renew has the list sent again. The mutex is held.
func (b *broadcast) renew() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// hasGone reports whether devices are listed that are no longer published.
func (b *broadcast) hasGone() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.gone) > 0
}

// retire takes those devices out of the list that have been gone for retireAfter and that the kubelet does
// not need, and returns their IDs. Where some stay the list is sent again: the kubelet then writes down who
// holds what, which it does not when a pod ends.
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

// latest returns the newest list sorted by ID, whether there is one yet, and a channel that is closed once it
// is no longer the newest.
func (b *broadcast) latest() (list *v1beta1.ListAndWatchResponse, published bool, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list = &v1beta1.ListAndWatchResponse{Devices: make([]*v1beta1.Device, 0, len(b.devices))}
	for _, d := range slices.SortedFunc(maps.Values(b.devices),
		func(d, e Device) int { return cmp.Compare(d.ID, e.ID) }) {
		list.Devices = append(list.Devices, wireDevice(d))
	}
	return list, b.published, b.changed
}

// wireDevice translates a device. One without NUMA nodes has no topology at all: any TopologyInfo, even one
// with node -1, makes the Topology Manager refuse the pod under restricted
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
