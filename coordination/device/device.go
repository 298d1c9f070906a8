// SPDX-License-Identifier: Apache-2.0

// Package device describes devices for the coordination of a node.
package device

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Kind is the kind of a resource: one half of a pair.
type Kind string

// Kinds of resources.
const (
	GPU Kind = "gpu"
	VF  Kind = "vf"
)

// Other returns the other kind of a pair.
func (k Kind) Other() Kind {
	if k == GPU {
		return VF
	}
	return GPU
}

// Plural returns the word for several devices of the kind.
func (k Kind) Plural() string {
	if k == GPU {
		return "GPUs"
	}
	return "VFs"
}

// Device is a device as announced by its plugin.
type Device struct {
	ID      string            // the kubelet's device ID
	Unit    topology.Unit     // of the zero value see [Device.Complete]
	Address topology.Address  // PCI function; for a partition, the function of its card
	NUMA    topology.NUMANode // as reported to the kubelet: unknown if the plugin sends no TopologyInfo
	Healthy bool
	VRAM    uint64 // memory of the card in bytes; 0 if unknown

	Degraded bool   // chosen last among equally distant devices
	Reason   string // for being unhealthy or degraded, for people; "" if unknown, or for a good device
}

// Words for the health of a device that is not good.
const (
	Failed   = "failed"
	Degraded = "degraded"
)

// Health returns [Failed], [Degraded] or, for a good device, "". An unhealthy device without a reason has not
// failed: its plugin is away or withholds it.
func Health(d *api.Device) string {
	switch {
	case d.GetReason() == "":
		return ""
	case !d.GetHealthy():
		return Failed
	case d.GetDegraded():
		return Degraded
	default:
		return ""
	}
}

// Withhold returns the device as one that nobody can get now. A reason remains only for a device that is
// unhealthy anyway: a degraded device that is withheld has not failed.
func (d Device) Withhold() Device {
	if d.Healthy {
		d.Healthy, d.Reason = false, ""
	}
	return d
}

// Announcement is the complete description of one resource by its plugin.
type Announcement struct {
	Devices []Device
	Links   []topology.Link // links between GPUs
	// Replicas is the rule for shared devices.
	Replicas Replicas
	// Hints is why the devices have NUMA nodes or none, for people; "" if nobody decided.
	Hints string

	Own bool // announced by a plugin of this process, which has read the PCI tree for it
}

// Complete returns the device with its unit: by the ID if the plugin has announced none.
func (d Device) Complete() Device {
	if d.Unit == (topology.Unit{}) {
		d.Unit = topology.UnitOfID(d.ID)
	}
	return d
}

// Placed returns the device for package placement. The kubelet may offer an unhealthy device for a moment:
// the device then counts as degraded.
func (d Device) Placed() placement.Device {
	return placement.Device{ID: d.ID, Address: d.Address, Degraded: d.Degraded || !d.Healthy}
}

// Compare orders devices by address and ID.
func Compare(a, b Device) int {
	return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.ID, b.ID))
}

// AddTo adds a half of this kind to a request.
func (k Kind) AddTo(request *placement.Request, half placement.Half) {
	if k == GPU {
		request.GPUs = append(request.GPUs, half)
	} else {
		request.VFs = append(request.VFs, half)
	}
}

// SameSet reports whether two nonempty lists contain the same IDs.
func SameSet(a, b []string) bool {
	return len(a) > 0 && slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// All returns a half in which all devices are held.
func All(devices []Device) placement.Half {
	half := placement.Half{Count: len(devices)}
	for _, d := range devices {
		half.Held = append(half.Held, d.Placed())
	}
	return half
}
