// Package pool says what a node publishes for the scheduler to choose from, as a pure function of what there
// is: the devices of its resource pool, the counters they share, and the ResourceSlices that hold them.
package pool

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/dra/inventory"
)

// Driver is the name of the DRA driver, and the domain of its attributes.
const Driver = "tandem.dev"

// Options say what can be published on a cluster.
type Options struct {
	Counters bool              // devices may share counters: PartitionableDevices, in Kubernetes 1.36 and later
	Taints   bool              // devices may have taints: DeviceTaints, in 1.36 and later; else what has one is left out
	VFsPerPF int               // at most so many VFs of a PF; 0 for all
	Bound    map[string]string // by device: the ID of the VF that a claim really got for it, where that is another one
}

// Type says what a device of the pool stands for.
type Type string

// The types of devices.
const (
	GPU    Type = "gpu"    // a GPU alone
	VF     Type = "vf"     // a VF alone
	Pair   Type = "pair"   // a GPU and a VF of its switch
	GPUVF  Type = "gpu-vf" // a GPU with its VF that is handed out as either of the two, where counters cannot be shared
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
	_, _ = machine, options
	return Pool{}
}
