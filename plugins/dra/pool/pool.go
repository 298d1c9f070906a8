// SPDX-License-Identifier: Apache-2.0

// Package pool computes the published devices of a node as a pure function of its inventory: the devices of
// the resource pool, their shared counters, and the ResourceSlices that contain them.
//
// The scheduler takes the first devices that fit and has no model of switches, so a pair is a device:
//
//	pair-11-00-0  ─┐ GPU 0000:11:00.0 and a VF of its switch that is reserved for it
//	gpu-11-00-0   ─┴─ one counter: the GPU alone
//	vf-0c-00-2        a VF that is reserved for no GPU
//
// This form is for switches with more VFs than GPUs. On other switches every combination of a GPU and a VF is
// a pair, named after both, and the VFs have counters too, so that both GPU-only and VF-only claims are
// possible. If there are more combinations than the scheduler can search, only some are pairs. On a cluster
// without counters a GPU with its VF is one device, allocated as a GPU or as a pair.
//
// Equal inputs give equal pools. A device is named after its PCI address: it keeps its name when other
// devices come and go. The order implements the objective of placement as far as an order can: pairs that are
// near each other are adjacent, GPUs without a remaining VF precede the others, and VFs alternate between
// PFs.
package pool

import (
	resourceapi "k8s.io/api/resource/v1"
)

// Driver is the name of the DRA driver and the domain of its attributes.
const Driver = "tandem.dev"

// Resource names that pods can request instead of a claim: the extendedResourceName of the device class. GPUs
// and VFs have the resource names of the device plugins.
const (
	PairResource   = Driver + "/pair"
	BundleResource = Driver + "/bundle"
)

// DefaultVFsPerPF is the default number of published VFs of a PF: each device costs the scheduler time, and a
// node runs some 110 pods.
const DefaultVFsPerPF = 16

// Options are the features of a cluster.
type Options struct {
	Counters bool // devices can share counters: PartitionableDevices, in Kubernetes 1.36 and later
	Taints   bool // devices can have taints (DeviceTaints, 1.36); otherwise such devices are omitted
	VFsPerPF int  // maximum number of VFs of a PF: usable ones first, with the lowest indexes; 0 for all
	// PairsAsVFs publishes the VFs of pairs with the VF's resource name for Multus, so that networks of the
	// device plugins need no change. Pods can then request pairs only by claims and not by PairResource,
	// because Multus requires the requested name.
	PairsAsVFs bool
	// Bound contains the IDs of the VFs that claims actually hold, by device: for a pair its VF, also if it
	// is the published one; for a GPU the VF that was assigned with it; for a VF the other VF that was
	// assigned in its place. None of them is published for other claims.
	Bound map[string]string
	// InUse maps the IDs of GPUs and VFs of claims to the devices through which the claims hold them. While
	// such a device is published, the scheduler avoids conflicting devices; if it is not published, devices
	// with the same GPU or VF have a taint.
	InUse map[string]string
	// FailedLater contains the IDs of VFs that have become unhealthy since they were published. They stay in
	// their pairs, which get a taint: another VF, which a claim may have been allocated by itself, moves into no
	// pair, and only one slice changes. Other unhealthy VFs do not take the place of usable ones.
	FailedLater map[string]bool
}

// Type is the type of a pool device.
type Type string

// Types of devices.
const (
	TypeGPU    Type = "gpu"    // a GPU alone
	TypeVF     Type = "vf"     // a VF alone
	TypePair   Type = "pair"   // a GPU and a VF of its switch
	TypeGPUVF  Type = "gpu-vf" // a GPU with its VF, as a GPU or a pair, on clusters without shared counters
	TypeBundle Type = "bundle" // all partitions of a GPU, each with a VF if there are enough
)

// Device describes the parts of a pool device.
type Device struct {
	Name string // "pair-11-00-0", after the PCI address of its GPU, stable over restarts
	Type Type
	GPUs []string // device IDs of the inventory
	VFs  []string // device IDs of the inventory; the i-th belongs to the i-th GPU
}

// Pool is the published state of a node.
type Pool struct {
	Slices  []Slice           // in the order in which the scheduler must see them
	Devices map[string]Device // by name
	Notes   []string          // omitted devices and the reasons
}

// Slice is the content of one ResourceSlice: devices, or the counters that devices share.
type Slice struct {
	SharedCounters []resourceapi.CounterSet
	Devices        []resourceapi.Device
}
