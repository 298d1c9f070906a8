// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// recheck is the time between two looks for a driver, unless a flag says otherwise. The kernel tells a
// container nothing of a module that is loaded: sysfs knows no inotify, and uevents stay in the node's
// network namespace.
const recheck = 30 * time.Second

// Absence is what may be waited for.
type Absence struct {
	Reason error         // what a look fails with while it is absent
	Every  time.Duration // between two looks
	Vendor string        // whose driver it is; "" for either
}

// AwaitDriver looks until what is looked for is there, or the look fails for another reason. Meanwhile the
// daemon is not ready, unless the machine has no GPU on PCI that it could wait for, and nothing is offered,
// which is said once. To end would be no help: the daemon would be started again, later and later.
func AwaitDriver[T any](
	ctx context.Context, a Absence, flags daemon.Flags, log *slog.Logger, look func() (T, error),
) (T, error) {
	found, err := look()
	if !errors.Is(err, a.Reason) {
		return found, err
	}
	a.note(flags, err)
	log.Warn("nothing is offered until the driver is there", "reason", err, "look_every", a.Every)
	ticker := time.NewTicker(a.Every)
	defer ticker.Stop()
	for errors.Is(err, a.Reason) {
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-ticker.C:
		}
		if found, err = look(); errors.Is(err, a.Reason) {
			a.note(flags, err)
		}
	}
	return found, err
}

// note makes the daemon ready where nothing is to come. A machine that cannot be read tells nothing of that.
func (a Absence) note(flags daemon.Flags, reason error) {
	sys, err := flags.Sysfs()
	if err == nil {
		var tree *topology.Tree
		if tree, err = topology.Read(sys); err == nil {
			awaited := gpu.AwaitedIn(tree, a.Vendor)
			if len(awaited.Cards) == 0 {
				flags.Begin()
				return
			}
			reason = fmt.Errorf("%s: %w", awaited, reason)
		}
	}
	flags.Wait(reason)
}
