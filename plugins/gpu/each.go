// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Each runs work for every resource name, for those that appear later when they do, until ctx is done or one
// of them fails. A name stays when the last of its devices is gone: the kubelet must not see them vanish.
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

// Names are the resource names found so far, sorted.
func (g *GPUs) Names() []string {
	names, _ := g.names()
	return names
}

// names lists the resource names, sorted, and a channel that is closed once there may be another.
func (g *GPUs) names() ([]string, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.resources)), g.changed.Next()
}
