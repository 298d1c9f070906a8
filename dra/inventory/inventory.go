// Package inventory is what a node has to hand out, as one value that never changes.
package inventory

import (
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// Machine is what there is on a node at one moment.
type Machine struct {
	Tree  *topology.Tree
	GPUs  []GPU // ascending by card, then by part
	VFs   []VF  // ascending by address, then by ID
	Links []topology.Link
	Notes []string // what the node has and DRA cannot offer, and why; sorted
}

// GPU is a GPU or a partition of one.
type GPU struct {
	gpu.Device        // of a GPU that is shared by time the GPU itself: its ID is not that of a replica
	Resource   string // under which the device plugin offers it, "amd.com/gpu"
	Vendor     string // "amd" or "nvidia"
	Model      string // "MI300X"; its PCI IDs where the model is not known
	Switch     string // the topmost bridge that it shares with another card, or its host bridge
	Hive       string // the lowest address of the GPUs that links connect it with; "" without links
	Parts      int    // of its card, 1 for a whole GPU
	// who holds it that is no claim, for people: "pod team/train-0, by the device plugin"; "" for nobody
	Held string
}

// Whole reports whether it is a GPU and not a partition of one.
func (g GPU) Whole() bool { return g.Parts == 1 && g.Part == "" }

// VF is a VF, or a PF that has none and is handed out as one, or a sub-function.
type VF struct {
	pools.Device        // of a shared HCA the HCA itself: its ID is not that of a replica
	Pool         string // the resource name that the device plugin has for it, "tandem.dev/rdma_vf"
	Switch       string // as of a GPU
	RDMA         string // "mlx5_5", also while a container hides it; "" for none
	Netdev       string // as the node calls it; "" for none, and while a container has it
	Rail         int    // its index among the VFs of its PF, from 0; 0 of anything else
	Held         string // as of a GPU
}

// Function is the function that a VF belongs to: its PF, or itself where it is none.
func (v VF) Function() topology.Address {
	if v.PF != (topology.Address{}) {
		return v.PF
	}
	return v.Address
}
