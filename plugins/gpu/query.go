// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

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

// Each runs work for every resource name, including names that appear later, until ctx is done or a call
// fails. A name stays after the last of its devices is gone, because the kubelet must not see devices vanish.
func (g *GPUs) Each(ctx context.Context, work func(ctx context.Context, name string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	begun := map[string]bool{}
	for {
		names, changed := g.names()
		for _, name := range names {
			if !begun[name] {
				begun[name] = true
				group.Go(func() error { return work(ctx, name) })
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return group.Wait()
		}
	}
}

// Names returns the resource names found so far, sorted.
func (g *GPUs) Names() []string {
	names, _ := g.names()
	return names
}

// names returns the resource names, sorted, and a channel that is closed when names may have been added.
func (g *GPUs) names() ([]string, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.resources)), g.changed.Next()
}
