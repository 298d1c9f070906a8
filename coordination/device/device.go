// Package device says what a device is to the coordination of a node.
package device

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Kind says which half of a pair a resource is.
type Kind string

// The two halves of a pair.
const (
	GPU Kind = "gpu"
	VF  Kind = "vf"
)

// Other is the kind on the other side of a pair.
func (k Kind) Other() Kind {
	if k == GPU {
		return VF
	}
	return GPU
}

// Plural is what people call several devices of the kind.
func (k Kind) Plural() string {
	if k == GPU {
		return "GPUs"
	}
	return "VFs"
}

// Device is a device as its plugin announces it.
type Device struct {
	ID      string            // the kubelet's device ID
	Address topology.Address  // PCI function; of a partition, the function of its card
	NUMA    topology.NUMANode // as told to the kubelet: unknown where the plugin sends no TopologyInfo
	Healthy bool
	VRAM    uint64 // bytes of its card's memory; 0 where it is not known
}

// Announcement is everything a plugin says of one resource.
type Announcement struct {
	Devices []Device
	Links   []topology.Link // between GPUs

	Own bool // of a plugin of this process, which has read the PCI tree for it
}

// Placed is the device as placement knows it.
func (d Device) Placed() placement.Device { return placement.Device{ID: d.ID, Address: d.Address} }

// Compare orders devices by address and ID.
func Compare(a, b Device) int {
	return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.ID, b.ID))
}

// AddTo makes a half of this kind part of a request.
func (k Kind) AddTo(request *placement.Request, half placement.Half) {
	if k == GPU {
		request.GPUs = append(request.GPUs, half)
	} else {
		request.VFs = append(request.VFs, half)
	}
}

// SameSet reports whether two lists hold the same IDs, at least one.
func SameSet(a, b []string) bool {
	return len(a) > 0 && slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// All is the half of a request in which everything is decided.
func All(devices []Device) placement.Half {
	half := placement.Half{Count: len(devices)}
	for _, d := range devices {
		half.Held = append(half.Held, d.Placed())
	}
	return half
}
