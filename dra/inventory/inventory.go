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
	GPUs  []GPU // ascending by card, then by ID
	VFs   []VF  // ascending by address, then by ID
	Links []topology.Link
}

// GPU is a GPU or a partition of one.
type GPU struct {
	gpu.Device
	Resource string // under which the device plugin offers it, "amd.com/gpu"
	Model    string // "MI300X"; its PCI IDs where the model is not known
	Switch   string // the topmost bridge that it shares with another card, or its host bridge: topology.Tree.Switch
	Hive     string // the lowest address of the GPUs that links connect it with; "" without links
	Parts    int    // partitions of its card, 1 for a whole GPU
	Held     string // who holds it that is no claim, for people: "pod team/train-0, by the device plugin"; "" for nobody
}

// VF is a VF, or a PF that has none and is handed out as one.
type VF struct {
	pools.Device
	Pool   string // the resource name that the device plugin has for it, "tandem.dev/rdma_vf"
	Switch string
	RDMA   string // "mlx5_5"; "" for none
	Netdev string // as the node calls it; "" for none
	Rail   int    // its place among the VFs of its PF, from 0
	Held   string // as of a GPU
}
