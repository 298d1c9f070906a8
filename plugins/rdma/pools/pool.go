// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"io/fs"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// Pool has the devices of one resource name on a machine.
type Pool struct {
	Name     string          // "intel.com/mlnx_vf"
	Devices  []Device        // ascending by address, then by ID
	Resource *ResourceConfig // from the configuration
	First    bool            // of the pools with its prefix and device type
	Decision string          // about the hints, a sentence for people; "" if nobody decided
}

// Device finds a device by its ID.
func (p Pool) Device(id string) (d Device, ok bool) {
	i := slices.IndexFunc(p.Devices, func(d Device) bool { return d.ID == id })
	if i < 0 {
		return Device{}, false
	}
	return p.Devices[i], true
}

// Beside returns a healthy device for each HCA of the pool that ids do not cover; nil unless containers get
// all HCAs.
func (p Pool) Beside(ids []string) (beside []string) {
	if p.Resource.DeviceType != SharedHCA || !p.Resource.Tandem.AllHCAs {
		return nil
	}
	has := map[string]bool{}
	for _, d := range p.Devices {
		has[d.HCA] = has[d.HCA] || slices.Contains(ids, d.ID)
	}
	for _, d := range p.Devices {
		if !has[d.HCA] && d.Fault == "" {
			has[d.HCA] = true
			beside = append(beside, d.ID)
		}
	}
	return beside
}

// Device is a device of a pool, usually a VF.
type Device struct {
	// the kubelet's device ID: the full PCI address, or the name of a sub-function; of a replica see replicaID
	ID       string
	Address  topology.Address  // the PCI function; the parent of a sub-function
	PF       topology.Address  // of a VF; zero for other devices
	NUMA     topology.NUMANode // unknown also without hints, see [Pool.Decided]
	Aux      string            // of a sub-function: the name of its auxiliary device
	Fault    string            // reason for being unhealthy, for people; "" for a healthy device
	Degraded string            // reason for being chosen last, for people; "" for a good device
	Selector *Selector         // the selector with the device's options; nil for a device that is gone
	Visible  *Hidden           // properties that containers would hide; nil if a container may hold the device
	// of a replica of a shared HCA: the common name of the HCA's replicas in this pool
	HCA string
}

// Function returns the PF of a VF, or the function itself if it is not a VF.
func (d Device) Function() topology.Address {
	if d.PF != (topology.Address{}) {
		return d.PF
	}
	return d.Address
}

// Unit returns what a container has by the device: the function or the sub-function; by a replica of an HCA,
// shared.
func (d Device) Unit() topology.Unit { return topology.NewUnit(d.Address, d.Aux, d.HCA != "") }

// Name returns the name for people and container runtimes: the HCA of a replica, else the ID.
func (d Device) Name() string { return cmp.Or(d.HCA, d.ID) }

// Missing reports whether a device was found before and is no longer.
func (d Device) Missing() bool { return d.Selector == nil }

// Same reports whether two devices with one ID are the same device in the same state, for all consumers: a
// sub-function can reuse the name of another PF's sub-function.
func (d Device) Same(e Device) bool {
	d.Selector, d.Visible, e.Selector, e.Visible = nil, nil, nil, nil
	return d == e
}

// Gone reports whether the machine no longer has a device.
func (d Device) Gone(sys fs.FS) bool { return isGone(sys, d.File()) }

// File names a file of the device below the sysfs root.
func (d Device) File(elements ...string) string { return FunctionFile(d.Address, d.Aux, elements...) }

// Compare compares devices in the order of a pool.
func (d Device) Compare(e Device) int {
	return cmp.Or(d.Address.Compare(e.Address), cmp.Compare(d.ID, e.ID))
}

// replicaID returns the kubelet's device ID of a replica: "0000:0c:00.0::3". Numbers continue from resource
// to resource, by their rdmaHcaMax, so that IDs are unique.
func replicaID(a topology.Address, number int) string {
	return topology.ReplicaID(a.String(), number)
}

// FromID returns a device with the fields that are part of its ID: the address and, for a replica, the HCA.
// FromID returns false for an ID without an address.
func FromID(id string) (Device, bool) {
	address, replica := topology.CutReplica(id)
	a, err := topology.ParseAddress(address)
	d := Device{ID: id, Address: a}
	if replica {
		d.HCA = address
	}
	return d, err == nil
}
