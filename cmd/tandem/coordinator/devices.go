// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
)

// Device is a GPU or VF with its state and its owner.
type Device struct {
	ID      string  `json:"id"`
	Address string  `json:"address"`
	Switch  string  `json:"switch"`
	NUMA    *uint32 `json:"numa"` // the NUMA node in the plugin's TopologyInfo
	State   string  `json:"state"`
	Health  string  `json:"health,omitempty"` // "failed", or "degraded": chosen last; absent from a good device
	Reason  string  `json:"reason,omitempty"` // for the health
	Owner   string  `json:"owner,omitempty"`  // namespace/pod/container, if known
	// the ended container that had the device; the kubelet frees the device at its next allocation
	Ended string `json:"ended,omitempty"`
}

// The states of a device.
const (
	free               = "free"
	stranded           = "stranded" // free, without a free device of the other kind on the switch
	planned            = "planned"
	allocated          = "allocated"
	unhealthy          = "unhealthy"
	allocatedUnhealthy = "allocated, unhealthy"
)

func newDevice(d *api.DeviceStatus, inPlan bool) Device {
	one := Device{
		ID: d.GetDevice().GetId(), Address: d.GetDevice().GetAddress(), Switch: d.GetSwitch(),
		NUMA: d.GetDevice().Numa, State: free, Owner: ownerText(d.GetOwner()),
		Ended: ownerText(d.GetEnded()), Health: device.Health(d.GetDevice()), Reason: d.GetDevice().GetReason(),
	}
	switch {
	case d.GetAllocated() && !d.GetDevice().GetHealthy():
		one.State = allocatedUnhealthy
	case d.GetAllocated():
		one.State = allocated
	case !d.GetDevice().GetHealthy():
		one.State = unhealthy
	case inPlan:
		one.State = planned
	case d.GetStranded():
		one.State = stranded
	}
	return one
}

// IsHealthy reports whether the plugin of the device reports the device as healthy.
func (d Device) IsHealthy() bool { return d.State != unhealthy && d.State != allocatedUnhealthy }

// UnknownHolder is the holder of a device whose container is unknown.
const UnknownHolder = "?"

// Holder returns the container that has the device, [UnknownHolder] or "" for none.
func (d Device) Holder() string {
	if d.State != allocated && d.State != allocatedUnhealthy {
		return ""
	}
	return cmp.Or(d.Owner, UnknownHolder)
}

func ownerText(o *api.Owner) string {
	if o == nil {
		return ""
	}
	if o.GetNamespace() == "" {
		return o.GetPod() + "/" + o.GetContainer() // of which no more is known
	}
	return o.GetNamespace() + "/" + o.GetPod() + "/" + o.GetContainer()
}

// row is a device with what is to be known of its resource.
type row struct {
	Device
	resource string
	kind     device.Kind
	stale    bool // its plugin is away: it is as it was known last
}

// free reports whether a container can get it now.
func (r row) free() bool { return !r.stale && (r.State == free || r.State == stranded) }

func numaText(node *uint32) string {
	if node == nil {
		return "?"
	}
	return fmt.Sprint(*node)
}

// insert adds to a sorted list what it does not have yet.
func insert(list []string, s string) []string {
	if i, found := slices.BinarySearch(list, s); !found {
		return slices.Insert(list, i, s)
	}
	return list
}
