package inventory

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// Sources are what a machine is put together from.
type Sources struct {
	Sys   fs.FS // sysfs, for the names of RDMA devices
	Tree  *topology.Tree
	GPUs  map[string][]gpu.Device // by resource name, as a backend found them or as they were kept
	Links []topology.Link
	Pools []pools.Pool // in the order of the configuration
}

// New puts a machine together. A device is in it once, however many resources offer it, and however many
// containers may share it: a claim has a device for itself. What is gone is not in it, what is unhealthy is.
func New(s Sources) Machine {
	b := builder{Sources: s}
	b.addGPUs()
	b.addVFs()
	slices.Sort(b.notes)
	return Machine{Tree: s.Tree, GPUs: b.gpus, VFs: b.vfs, Links: s.Links, Notes: slices.Compact(b.notes)}
}

// builder is a machine that is put together.
type builder struct {
	Sources
	gpus  []GPU
	vfs   []VF
	notes []string
}

func (b *builder) note(sentence string) { b.notes = append(b.notes, sentence) }

// physical is the ID of the device that an ID is a replica of, or the ID itself: both vendors and the pools
// put the number of a replica behind two colons.
func physical(id string) (original string, replica bool) {
	original, _, replica = strings.Cut(id, "::")
	return original, replica
}
