// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/device"
)

// ailments are the changes of health of a node, one after another.
type ailments []*Event

// during returns the health before an event, nil if all devices are good, and whether the health or the set
// of failed devices changes before the event ends. The end of a change is the moment at which the kubelet and
// Tandem know of it.
func (a ailments) during(e *Event) (before *Event, ailing, failing bool) {
	i, _ := slices.BinarySearchFunc(a, e.Call, func(h *Event, at int64) int {
		if h.end() < at {
			return -1
		}
		return 1
	})
	if i > 0 {
		before = a[i-1]
	}
	for ; i < len(a) && a[i].Call <= e.end(); i++ {
		failing = failing || a[i].Return == 0 || !sameDevices(before.failed(), a[i].Failed)
		ailing = ailing || failing || !sameDevices(before.degraded(), a[i].Degraded)
	}
	return before, ailing, failing
}

func (e *Event) failed() map[string][]string {
	if e == nil {
		return nil
	}
	return e.Failed
}

func (e *Event) degraded() map[string][]string {
	if e == nil {
		return nil
	}
	return e.Degraded
}

// sameDevices reports whether two sets of devices are equal.
func sameDevices(a, b map[string][]string) bool {
	return maps.EqualFunc(a, b, sameSet)
}

// hasFailed reports whether a device has failed, as far as the health is certain.
func (in input) hasFailed(resource, id string) bool {
	return slices.Contains(in.health.failed()[resource], id)
}

// devices returns the devices of a resource with their health.
func (m model) devices(in input, resource string) []device.Device {
	all := slices.Clone(m.Devices[resource])
	for i := range all {
		d := &all[i]
		d.Healthy, d.Degraded = true, slices.Contains(in.health.degraded()[resource], d.ID)
	}
	return all
}

// judgeFailed judges whether a container gets a failed device.
func (m model) judgeFailed(in input) []breach {
	for _, id := range in.event.Devices {
		if in.hasFailed(in.event.Resource, id) {
			return []breach{{FailedGiven, fmt.Sprintf("%s %s has failed", in.event.Resource, id)}}
		}
	}
	return nil
}
