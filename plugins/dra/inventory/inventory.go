// SPDX-License-Identifier: Apache-2.0

// Package inventory describes the allocatable devices of a node as one immutable value.
package inventory

import (
	"io/fs"
	"slices"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// Machine contains the devices of a node at one moment.
type Machine struct {
	Tree  *topology.Tree
	GPUs  []GPU // ascending by card, then by partition
	VFs   []VF  // ascending by address, then by ID
	Links []topology.Link
	Notes []string // devices of the node that DRA cannot offer, and the reasons; sorted
}

// GPU is a GPU or a partition of a GPU.
type GPU struct {
	gpu.Device        // for a time-sliced GPU, the GPU itself: the ID is not that of a replica
	Resource   string // resource name of the device plugin, "amd.com/gpu"
	Vendor     string // "amd" or "nvidia"
	Model      string // "MI300X"; PCI IDs if the model is unknown
	Switch     string // the topmost bridge that it shares with another card, or its host bridge
	Hive       string // the lowest address of the GPUs connected by links; "" without links
	Parts      int    // number of partitions of its card, 1 for a whole GPU
	// Held names the holder other than a claim, for people: "pod team/train-0, by the device plugin"; "" for
	// none.
	Held string
}

// Whole reports whether the GPU is not a partition.
func (g GPU) Whole() bool { return g.Parts == 1 && g.Part == "" }

// VF is a VF, a PF without VFs that is offered as one, or a sub-function.
type VF struct {
	pools.Device        // for a shared HCA, the HCA itself: the ID is not that of a replica
	Pool         string // resource name of the device plugin, "tandem.dev/rdma_vf"
	Switch       string // as for a GPU
	RDMA         string // "mlx5_5", also while a container hides it; "" for none
	Netdev       string // as the node calls it; "" for none, and while a container has it
	Index        int    // its index among the VFs of its PF, from 0; 0 of anything else
	Held         string // as of a GPU
}

// Sources are the inputs of New.
type Sources struct {
	Sys   fs.FS // sysfs, for the names of RDMA devices
	Tree  *topology.Tree
	GPUs  map[string][]gpu.Device // by resource name, as found by a backend or as kept
	Links []topology.Link
	Pools []pools.Pool // in the order of the configuration
}

// New returns the inventory of a machine. It contains each device once, even if several resources offer it or
// several containers may share it, because a claim holds a device exclusively. It omits gone devices and
// includes unhealthy ones.
func New(s Sources) Machine {
	b := builder{Sources: s}
	b.addGPUs()
	b.addVFs()
	slices.Sort(b.notes)
	return Machine{Tree: s.Tree, GPUs: b.gpus, VFs: b.vfs, Links: s.Links, Notes: slices.Compact(b.notes)}
}

// builder builds a Machine.
type builder struct {
	Sources
	gpus  []GPU
	vfs   []VF
	notes []string
}

func (b *builder) note(sentence string) { b.notes = append(b.notes, sentence) }
