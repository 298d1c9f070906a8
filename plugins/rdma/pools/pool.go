// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
	"github.com/tandem-k8s/tandem/topology"
)

// Pool is what one resource name stands for on a machine.
type Pool struct {
	Name     string          // "intel.com/mlnx_vf"
	Devices  []Device        // ascending by address, then by ID
	Resource *ResourceConfig // what the configuration says of it
	First    bool            // of the pools with its prefix and device type
}

// Device finds a device by its ID.
func (p Pool) Device(id string) (d Device, ok bool) {
	i := slices.IndexFunc(p.Devices, func(d Device) bool { return d.ID == id })
	if i < 0 {
		return Device{}, false
	}
	return p.Devices[i], true
}

// Beside are devices of the pool that stand for the HCAs which some devices do not, one for each that is
// healthy; none where containers get what they were given alone.
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

// Device is one device of a pool, mostly a VF.
type Device struct {
	// the kubelet's device ID: the full PCI address, or the name of a sub-function; of a replica see replicaID
	ID       string
	Address  topology.Address  // the PCI function; that which a sub-function hangs on
	PF       topology.Address  // of a VF; the zero Address for anything else
	NUMA     topology.NUMANode // unknown too where the resource has excludeTopology
	Aux      string            // of a sub-function: the name of its auxiliary device
	Fault    string            // why it is unhealthy, for people; "" for a healthy device
	Selector *Selector         // the one that selected it; its options apply. nil where it is found no more
	Visible  *Hidden           // what containers would hide of it; nil where it may be in one
	// of a replica of a shared HCA: what all replicas of the HCA in this pool are called together
	HCA string
}

// Name is what people and container runtimes know a device by: its ID, or the HCA that it is a replica of.
func (d Device) Name() string { return cmp.Or(d.HCA, d.ID) }

// Missing reports whether a device was found before and is no longer.
func (d Device) Missing() bool { return d.Selector == nil }

// Same reports whether two devices with one ID are the same device in the same state, for all who are told of
// devices: a sub-function can get the name that one of another PF has had.
func (d Device) Same(e Device) bool {
	d.Selector, d.Visible, e.Selector, e.Visible = nil, nil, nil, nil
	return d == e
}

// Gone reports whether the machine no longer has a device.
func (d Device) Gone(sys fs.FS) bool { return sysfs.Gone(sys, d.File()) }

// File names a file of the device below the sysfs root.
func (d Device) File(elements ...string) string { return sysfs.File(d.Address, d.Aux, elements...) }

// Compare is the order of a pool's devices.
func (d Device) Compare(e Device) int {
	return cmp.Or(d.Address.Compare(e.Address), cmp.Compare(d.ID, e.ID))
}

// replicaMark is between the address of a shared HCA and the number of the replica, as in the IDs of shared
// GPUs (NVIDIA/k8s-device-plugin, internal/rm/devices.go).
const replicaMark = "::"

// replicaID is the kubelet's device ID of a replica: "0000:0c:00.0::3". Numbers go on from resource to
// resource, as the resources' rdmaHcaMax say, so that no two of them have the same ID.
func replicaID(a topology.Address, number int) string {
	return fmt.Sprintf("%s%s%d", a, replicaMark, number)
}

// FromID is what a device ID alone tells of a device: false for one that holds no address.
func FromID(id string) (Device, bool) {
	address, _, replica := strings.Cut(id, replicaMark)
	a, err := topology.ParseAddress(address)
	d := Device{ID: id, Address: a}
	if replica {
		d.HCA = address
	}
	return d, err == nil
}
