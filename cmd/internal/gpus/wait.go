// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// recheck is the default interval between two looks for a driver. A container gets no notification of a
// loaded module: sysfs has no inotify, and uevents stay in the node's network namespace.
const recheck = 30 * time.Second

// Absence describes an absent driver.
type Absence struct {
	Every  time.Duration // between two looks
	Vendor string        // of the driver; "" for either
	Flag   string        // value of --vendor
}

// AwaitDriver calls look until it succeeds or fails for another reason than an absent driver, and logs the
// absence once. Meanwhile the daemon offers nothing and is not ready, unless the machine has no PCI GPU for
// the driver. Exiting instead would only cause restarts with growing delays.
func AwaitDriver[T any](
	ctx context.Context, a Absence, flags daemon.Flags, log *slog.Logger, look func() (T, error),
) (T, error) {
	found, err := look()
	if !gpu.IsNoDriver(err) {
		return found, err
	}
	log.Warn("no GPU driver; offering no device until a driver is present", "reason", a.note(flags, err),
		"look_every", a.Every)
	ticker := time.NewTicker(a.Every)
	defer ticker.Stop()
	for gpu.IsNoDriver(err) {
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-ticker.C:
		}
		if found, err = look(); gpu.IsNoDriver(err) {
			_ = a.note(flags, err) // it is in the log already
		}
	}
	return found, err
}

// note makes the daemon ready if the machine has no GPU to wait for, and returns the reason for the wait. The
// daemon stays not ready if the machine cannot be read, or if its GPUs are of another vendor.
func (a Absence) note(flags daemon.Flags, reason error) error {
	sys, err := flags.Sysfs()
	if err == nil {
		var tree *topology.Tree
		if tree, err = topology.Read(sys); err == nil {
			awaited := gpu.AwaitedIn(tree, a.Vendor)
			other := gpu.OtherVendor(tree, a.Flag)
			switch {
			case other != nil:
				reason = other
			case len(awaited.Cards) == 0:
				flags.Begin()
				return reason
			default:
				reason = fmt.Errorf("%s: %w", awaited, reason)
			}
		}
	}
	flags.Wait(reason)
	return reason
}
