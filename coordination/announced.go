// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// announcements are the latest announcements of this plugin's resources.
type announcements struct {
	mu      sync.Mutex
	all     []*announcement
	changed system.Signal
}

// announcement is the latest announcement of a resource.
type announcement struct {
	resource string
	kind     device.Kind
	siblings *announcements

	// The mutex of siblings guards the following fields.
	latest  device.Announcement
	message *api.Announcement // latest in the wire format; nil before the first announcement
	taken   chan struct{}     // closed after the server's acknowledgement; nil before the first announcement
}

// add adds a resource without an announcement.
func (n *announcements) add(resource string, kind device.Kind) *announcement {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := &announcement{resource: resource, kind: kind, siblings: n}
	n.all = append(n.all, a)
	return a
}

// messages returns the latest announcement of every resource, and a channel that is closed after the next
// announcement.
func (n *announcements) messages() (all []*api.Announcement, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.all {
		if a.message != nil {
			all = append(all, a.message)
		}
	}
	return all, n.changed.Next()
}

// release releases the callers that wait for the acknowledgement of a message.
func (n *announcements) release(message *api.Announcement) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.all {
		if a.message != message {
			continue
		}
		select {
		case <-a.taken: // already acknowledged, possibly by the previous server
		default:
			close(a.taken)
		}
	}
}

// publish replaces the latest announcement, unless both are equal.
func (a *announcement) publish(latest device.Announcement) {
	a.siblings.mu.Lock()
	defer a.siblings.mu.Unlock()
	if a.message != nil && slices.Equal(latest.Devices, a.latest.Devices) &&
		slices.Equal(latest.Links, a.latest.Links) && latest.Replicas == a.latest.Replicas &&
		latest.Hints == a.latest.Hints {
		return
	}
	a.latest = latest
	a.message, a.taken = a.latest.Encode(a.resource, a.kind), make(chan struct{})
	a.message.Version = ownVersion()
	a.siblings.changed.Raise()
}

// takeTimeout is the maximum time for the coordinator to accept an announcement. The coordinator reads the
// PCI tree, and may have to be started first.
const takeTimeout = time.Second

// await waits for the acknowledgement of the latest announcement, for at most takeTimeout.
func (a *announcement) await(ctx context.Context) {
	a.siblings.mu.Lock()
	taken := a.taken
	a.siblings.mu.Unlock()
	if taken == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	select {
	case <-taken:
	case <-ctx.Done():
	}
}

// links returns the announced links between GPUs.
func (a *announcement) links() []topology.Link {
	a.siblings.mu.Lock()
	defer a.siblings.mu.Unlock()
	return a.latest.Links
}

// permitShared returns the available devices that the rule for shared devices permits, with the required
// ones.
func (a *announcement) permitShared(available, mustInclude []string, size int) []string {
	a.siblings.mu.Lock()
	latest := a.latest
	a.siblings.mu.Unlock()
	all := make([]string, 0, len(latest.Devices))
	for _, d := range latest.Devices {
		all = append(all, d.ID)
	}
	return slices.Concat(mustInclude, latest.Replicas.Permit(all, mustInclude, available, size))
}

// locateDevices returns devices for package placement. An unannounced device has no location.
func (a *announcement) locateDevices(ids []string) []placement.Device {
	a.siblings.mu.Lock()
	devices := a.latest.Devices
	a.siblings.mu.Unlock()
	known := make(map[string]device.Device, len(devices))
	for _, d := range devices {
		known[d.ID] = d
	}
	located := make([]placement.Device, 0, len(ids))
	for _, id := range ids {
		one := known[id].Placed()
		one.ID = id
		located = append(located, one)
	}
	return located
}

// retireAfter is the minimum time for which a gone device stays listed. No Allocate that began while the
// device was healthy takes as long.
const retireAfter = 30 * time.Second

// listed is the list of a resource, the same for the coordinator and the kubelet: the devices that the plugin
// finds, and devices of the list before that are gone, unhealthy. These stay for retireAfter, while the
// kubelet may look them up, by its checkpoint, and while the checkpoint is unknown: from 1.34 on the kubelet
// panics if such a device is no longer listed (allDevices is looked up without a check,
// pkg/kubelet/cm/devicemanager/manager.go). Other devices leave the list, because they count as capacity:
// after a reduction of a node's VFs the Topology Manager would assume that a request for all VFs fits on a
// NUMA node. A gone device has a NUMA node only beside one that has: if any device of a list has one, the
// kubelet looks for NUMA nodes with enough of them, and finds none where the others have none.
type listed struct {
	resource string
	config   *Config
	recorded func() (kubelet.Checkpoint, error)
	again    func() // makes the plugin list its devices again
	log      *slog.Logger

	before []device.Device      // the last list
	gone   map[string]time.Time // time since which a device of the last list is gone; nil before the first list
	later  *time.Timer
}

// addFound returns the list with the devices that the plugin finds now. While devices are gone, the list is
// sent again after retireAfter: the kubelet then writes its checkpoint, which it does not do when a pod ends.
func (l *listed) addFound(found []device.Device) []device.Device {
	recorded, unknown := l.recorded()
	if l.gone == nil {
		l.before = l.earlierDevices(recorded, unknown)
	}
	there, hinted := make(map[string]bool, len(found)), len(found) == 0
	for _, d := range found {
		there[d.ID], hinted = true, hinted || d.NUMA != topology.NUMANode{}
	}
	needed, gone := recorded.Listed(l.resource), map[string]time.Time{}
	list, retired := slices.Clone(found), []string(nil)
	for _, d := range l.before {
		if there[d.ID] {
			continue
		}
		since, already := l.gone[d.ID]
		if !already {
			since = time.Now()
		}
		if _, isNeeded := needed[d.ID]; unknown == nil && !isNeeded && time.Since(since) >= retireAfter {
			retired = append(retired, d.ID)
			continue
		}
		gone[d.ID] = since
		d.Healthy, d.Degraded, d.Reason = false, false, ""
		if !hinted {
			d.NUMA = topology.NUMANode{}
		}
		list = append(list, d)
	}
	if len(retired) > 0 {
		l.log.Info("removed devices that are gone", "devices", retired)
	}
	if l.later != nil {
		l.later.Stop()
	}
	if len(gone) > 0 {
		l.later = time.AfterFunc(retireAfter, l.again)
	}
	l.before, l.gone = list, gone
	return slices.Clone(list)
}

// earlierDevices returns the devices that the kubelet may look up, by its checkpoint, as an earlier process
// of this plugin has announced them. Without the checkpoint, the result is all devices in the file of an
// earlier server.
func (l *listed) earlierDevices(recorded kubelet.Checkpoint, unknown error) []device.Device {
	known := map[string]device.Device{}
	for id, node := range recorded.Listed(l.resource) {
		d := device.Device{ID: id}.Complete()
		d.Address, _ = topology.ParseAddress(d.Unit.Name) // zero if the ID has none
		if node >= 0 {
			d.NUMA = topology.Node(node)
		}
		known[id] = d
	}
	saved, err := admission.Saved(l.config.RunDir, l.config.Disk.Boot)
	if err != nil {
		l.log.Info("devices of an earlier server not read", "error", err)
	}
	for _, d := range saved[l.resource].Ordered() {
		if _, listed := known[d.ID]; listed || unknown != nil {
			known[d.ID] = d
		}
	}
	return slices.SortedFunc(maps.Values(known), device.Compare)
}
