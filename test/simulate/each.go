// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// each does n pieces of work on all processors.
func each(ctx context.Context, n int, do func(i int)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		group.Go(func() error {
			if ctx.Err() == nil {
				do(i)
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}
