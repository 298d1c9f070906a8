// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

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

// physical returns the ID of the device of a replica, or the ID itself: both vendors and the pools append the
// number of a replica after two colons.
func physical(id string) (original string, replica bool) {
	original, _, replica = strings.Cut(id, "::")
	return original, replica
}
