// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/topology"
)

// All are the devices as they were found last, by resource name and ascending by ID, the links between their
// cards, and a channel that is closed once either is no longer the newest. Nobody may change them.
func (g *GPUs) All() (map[string][]Device, []topology.Link, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.resources), slices.Clone(g.links), g.changed.Next()
}

// Refuse says why a container must not have these devices of a resource, or those IDs that are no device of
// it; nil where the vendor refuses nothing.
func (g *GPUs) Refuse(resource string, devices []Device, unknown []string) error {
	if refuser, ok := g.backend.(Refuser); ok {
		return refuser.Refuse(resource, devices, unknown)
	}
	return nil
}

// Edits returns what a container needs to use these devices, in this order, whatever resources they are of.
func (g *GPUs) Edits(devices []Device) container.Edits { return g.backend.Edits(devices) }
