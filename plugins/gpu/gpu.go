// SPDX-License-Identifier: Apache-2.0

// Package gpu offers a node's GPUs to the kubelet.
//
// What is the vendor's own, finding devices and saying what a container needs to use them, is behind
// [Backend]; packages amd and nvidia are two. Everything else is here once: [GPUs] discovers at the start and
// again on every pulse or event, and a [Plugin] per resource name tells the kubelet and the coordinator, asks
// the coordinator which devices to prefer, and answers Allocate.
package gpu

import (
	"context"
	"slices"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/topology"
)

// Backend is one vendor's driver as sysfs or the vendor's library shows it. Its methods are never called at
// the same time but for Edits.
type Backend interface {
	// Discover lists the devices as they are now. Resources that have none are listed too when they are to be
	// offered.
	// The first Discover may fail; a later one judges each GPU for itself, so that one which cannot be read, or
	// cannot be offered beside the others, does not hide what becomes of these.
	Discover() (Inventory, error)
	// Links lists the direct connections between the cards, none where the vendor has none.
	Links() ([]topology.Link, error)
	// Edits returns what a container needs to use these devices, in this order.
	Edits(devices []Device) container.Edits
}

// Watcher is a Backend that knows when it is time to discover again.
type Watcher interface {
	// Watch calls changed when Discover would find something else than before, until ctx is done.
	Watch(ctx context.Context, changed func()) error
}

// Refuser is a Backend that refuses what its vendor's own plugin refuses. An error makes the kubelet fail the
// pod.
type Refuser interface {
	// Refuse is asked before anything is allocated: about these devices, and those IDs that are no device of the
	// resource.
	Refuse(resource string, devices []Device, unknown []string) error
}

// Narrower is a Backend with a rule of its own for which devices of a resource to prefer, such as to spread
// containers over the cards that they share.
type Narrower interface {
	// Narrow leaves out of available what the rule forbids. What is left, mustInclude with it, is enough for
	// size devices if available was.
	Narrow(devices []Device, available, mustInclude []string, size int) []string
}

// Inventory is what a Backend found.
type Inventory struct {
	Resources map[string][]Device // by resource name, "amd.com/gpu"
	Notes     []string            // what was left out or is not as it should be, and why; for the log
	// Partial: the driver is away, or a GPU cannot be read. What is missing is unhealthy, not gone, but for
	// what is missing of the cards in Read, which were read whole.
	Partial bool
	Read    []topology.Address
}

// hides reports whether a device that was not found may be there all the same.
func (i *Inventory) hides(d Device) bool { return i.Partial && !slices.Contains(i.Read, d.Card) }

// Device is a GPU, or a part of one, that can be given to a container.
type Device struct {
	ID    string // the kubelet's device ID, as the vendor's own plugin makes it
	Card  topology.Address
	NUMA  topology.NUMANode
	Nodes []string // paths of its device nodes, on the host and in the container alike
	// of a part: what tells it from the other parts of its card for as long as it exists, "3" or "7-0": digits
	// and "-"; "" of a whole card, and of the function that is the first part of one
	Part    string
	Index   string // the vendor's number, "0" or, of a part, "0:1"; empty where containers are not told it
	VRAM    uint64 // bytes of its card's memory; 0 for unknown
	Healthy bool
	Gone    bool // it was found before and is no longer: set by GPUs alone, which know it until others go
}
