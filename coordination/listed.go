// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// retireAfter is the minimum time for which a gone device stays listed. No Allocate that began while the
// device was healthy takes as long.
const retireAfter = 30 * time.Second

// listed is the list of a resource, the same for the coordinator and the kubelet: the devices that the plugin
// finds, and devices of the list before that are gone, unhealthy. These stay for retireAfter, while the
// kubelet may look them up, by its checkpoint, and while the checkpoint is unknown: from 1.34 on the kubelet
// panics if such a device is no longer listed (allDevices is looked up without a check,
// pkg/kubelet/cm/devicemanager/manager.go). Other devices leave the list, because they count as capacity:
// after a reduction of a node's VFs the Topology Manager would assume that a request for all VFs fits on a
// NUMA node.
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

// add returns the list with the devices that the plugin finds now. While devices are gone, the list is sent
// again after retireAfter: the kubelet then writes its checkpoint, which it does not do when a pod ends.
func (l *listed) add(found []device.Device) []device.Device {
	recorded, unknown := l.recorded()
	if l.gone == nil {
		l.before = l.earlier(recorded, unknown)
	}
	there := make(map[string]bool, len(found))
	for _, d := range found {
		there[d.ID] = true
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

// earlier returns the devices that the kubelet may look up, by its checkpoint, as an earlier process of this
// plugin has announced them. Without the checkpoint, the result is all devices in the file of an earlier
// server.
func (l *listed) earlier(recorded kubelet.Checkpoint, unknown error) []device.Device {
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
