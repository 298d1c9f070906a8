// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/topology"
)

// All returns the last known devices by resource name, ascending by ID, the links between their cards, and a
// channel that is closed when either changes. Callers must not modify the devices.
func (g *GPUs) All() (map[string][]Device, []topology.Link, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.resources), slices.Clone(g.links), g.changed.Next()
}

// Refuse returns the vendor's reason against the allocation of devices of a resource, or of the unknown IDs,
// or nil.
func (g *GPUs) Refuse(resource string, devices []Device, unknown []string) error {
	if refuser, ok := g.backend.(Refuser); ok {
		return refuser.Refuse(resource, devices, unknown)
	}
	return nil
}

// Edits returns the edits for a container with these devices, in this order, of any resources.
func (g *GPUs) Edits(devices []Device) container.Edits { return g.backend.Edits(devices) }
