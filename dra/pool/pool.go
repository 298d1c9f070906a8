// Package pool says what a node publishes for the scheduler to choose from, as a pure function of what there
// is: the devices of its resource pool, the counters they share, and the ResourceSlices that hold them.
//
// The scheduler takes the first devices that fit and knows nothing of switches, so a pair is a device:
//
//	pair-11-00-0  ─┐ GPU 0000:11:00.0 and a VF of its switch that is reserved for it
//	gpu-11-00-0   ─┴─ one counter: the GPU alone
//	vf-0c-00-2        a VF that is reserved for no GPU
//
// That is for switches with more VFs than GPUs. On others every combination of a GPU and a VF is a pair,
// named after both, and the VFs have counters too, so that neither GPU-only nor VF-only claims are refused.
// Where the combinations are more than the scheduler can go through, only some are pairs. Where a cluster has
// no counters a GPU with its VF is one device, taken as GPU or as pair.
//
// What is the same twice is published the same. A device is named after its PCI address: it keeps its name
// when others come and go. The order is the objective of placement as far as an order can be: pairs that are
// near each other follow each other, GPUs that no VF is left for come before the others, VFs go round the
// PFs.
package pool

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/dra/inventory"
)

// Driver is the name of the DRA driver, and the domain of its attributes.
const Driver = "tandem.dev"

// Resource names that pods may ask for instead of a claim: the extendedResourceName of the device class. Of
// GPUs and VFs these are the names that the device plugins have for them.
const (
	PairResource   = Driver + "/pair"
	BundleResource = Driver + "/bundle"
)

// DefaultVFsPerPF is as many VFs of a PF as are published unless told otherwise: what the scheduler looks at
// costs it time, and a node runs some 110 pods.
const DefaultVFsPerPF = 8

// Options say what can be published on a cluster.
type Options struct {
	Counters bool // devices may share counters: PartitionableDevices, in Kubernetes 1.36 and later
	Taints   bool // devices may have taints: DeviceTaints, in 1.36 and later; else what has one is left out
	VFsPerPF int  // at most so many VFs of a PF, those of the lowest index; 0 for all
	// PairsAsVFs has Multus find the VFs of pairs under the resource name of the VF, so that networks of the
	// device plugins need no change. Pods can then not ask for PairResource, only for claims: Multus wants the
	// name that was asked for.
	PairsAsVFs bool
	// Bound are the IDs of the VFs that claims really have, by device: of a pair its VF, also where it is the
	// one that is published; of a GPU the VF that came with it; of a VF that another was handed out for that
	// one. None of them is published for somebody else.
	Bound map[string]string
	// InUse are the devices by which claims have GPUs and VFs, by the ID of these. The scheduler keeps others
	// away from them as long as that device is published; where it is not, others that stand for them have a
	// taint.
	InUse map[string]string
}

// Type says what a device of the pool stands for.
type Type string

// The types of devices.
const (
	GPU    Type = "gpu"    // a GPU alone
	VF     Type = "vf"     // a VF alone
	Pair   Type = "pair"   // a GPU and a VF of its switch
	GPUVF  Type = "gpu-vf" // a GPU with its VF, handed out as a GPU or a pair: where counters cannot be shared
	Bundle Type = "bundle" // all partitions of a GPU, each with a VF where there are enough
)

// Device is what a device of the pool stands for.
type Device struct {
	Name string // "pair-11-00-0", after the PCI address of its GPU, so that it stays the same over restarts
	Type Type
	GPUs []string // device IDs of the inventory
	VFs  []string // likewise; the i-th belongs to the i-th GPU
}

// Pool is what a node publishes.
type Pool struct {
	Slices  []Slice           // in the order in which the scheduler has to see them
	Devices map[string]Device // by name
	Notes   []string          // what was left out, and why
}

// Slice is what one ResourceSlice holds: devices, or the counters that devices share.
type Slice struct {
	SharedCounters []resourceapi.CounterSet
	Devices        []resourceapi.Device
}

// Build makes the pool of a machine. What is the same twice is published the same, in the same order.
func Build(machine inventory.Machine, options Options) Pool {
	b := newBuilder(machine, options)
	if options.Counters {
		b.addSharing()
	} else {
		b.addSingle()
	}
	b.addSurplus()
	if options.Counters {
		b.addBound()
	}
	return b.pool()
}
