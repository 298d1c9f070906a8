package simulation

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// each does n pieces of work on all processors, each worker with what it makes for itself.
func each(ctx context.Context, n int, worker func() func(i int)) error {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			do := worker()
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
