// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

const (
	// quiet and longest delay a scan until a burst of events ends: a PF creates its VFs in a burst, which
	// takes seconds for a hundred VFs.
	quiet   = 100 * time.Millisecond
	longest = time.Second
	// interval is the time between two scans if changes are not reported. It is the interval of the stock
	// plugin's health check.
	interval = 20 * time.Second
)

// Look requests a scan.
func (v *VFs) Look() {
	select {
	case v.look <- struct{}{}:
	default:
	}
}

// Run scans for changes until ctx is done: after events, and periodically if events are not available, if
// ports are watched or if the metrics exporter is used, which report no changes.
func (v *VFs) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	deaf := make(chan error, 1)
	if v.events != nil {
		g.Go(func() error { v.listen(ctx, deaf); return nil })
	}
	g.Go(func() error { v.keepLooking(ctx, deaf); return nil })
	g.Go(func() error { return v.health.Run(ctx, v.Look) })
	return g.Wait()
}

// listen forwards events until ctx is done. If the source ends, listen restarts it, because the reason, such
// as a lack of memory, may be temporary. The first reason is forwarded to keepLooking.
func (v *VFs) listen(ctx context.Context, deaf chan<- error) {
	for {
		err := v.events(ctx, v.Look)
		select {
		case deaf <- err:
		default: // keepLooking looks from time to time already
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return
		}
	}
}

func (v *VFs) keepLooking(ctx context.Context, deaf <-chan error) {
	pause := v.pause()
	ticker := time.NewTicker(cmp.Or(pause, interval))
	defer ticker.Stop()
	decide := time.NewTicker(decidePause)
	defer decide.Stop()
	ticks := ticker.C
	if pause == 0 {
		ticks = nil
	}
	for {
		select {
		case <-v.look:
			v.settle(ctx)
		case <-ticks:
		case <-decide.C:
			v.decideAgain()
			continue
		case err := <-deaf:
			if ctx.Err() == nil {
				v.log.Warn("kernel events not available; polling",
					"interval", interval, "error", err)
			}
			ticker.Reset(interval)
			ticks, deaf = ticker.C, nil
			continue
		case <-ctx.Done():
			return
		}
		v.rescan()
	}
}

// pause returns the time between two periodic scans; 0 for none if events are available.
func (v *VFs) pause() time.Duration {
	asked := func(h pools.Health) bool { return h.CheckPort || h.CheckExporter }
	if v.events == nil || v.config.Checks(asked) {
		return interval
	}
	return v.config.Interval
}

// settle waits for the end of a burst of changes.
func (v *VFs) settle(ctx context.Context) {
	limit := time.NewTimer(longest)
	defer limit.Stop()
	for {
		pause := time.NewTimer(quiet)
		select {
		case <-v.look:
			pause.Stop()
		case <-pause.C:
			return
		case <-limit.C:
			pause.Stop()
			return
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}
