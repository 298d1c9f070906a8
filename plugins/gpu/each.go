// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
)

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
