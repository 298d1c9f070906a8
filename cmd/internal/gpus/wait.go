package gpus

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
)

// recheck is the time between two looks for a driver, unless a flag says otherwise. The kernel tells a
// container nothing of a module that is loaded: sysfs knows no inotify, and uevents stay in the node's
// network namespace.
const recheck = 30 * time.Second

// Absence is what may be waited for.
type Absence struct {
	Reason error         // what a look fails with while it is absent
	Every  time.Duration // between two looks
}

// AwaitDriver looks until what is looked for is there, or the look fails for another reason. It says once
// that nothing is offered meanwhile. To end would be no help: the daemon would be started again, later and
// later.
func AwaitDriver[T any](
	ctx context.Context, a Absence, flags daemon.Flags, log *slog.Logger, look func() (T, error),
) (T, error) {
	found, err := look()
	if !errors.Is(err, a.Reason) {
		return found, err
	}
	flags.Begin()
	log.Warn("nothing is offered until the driver is there", "reason", err, "look_every", a.Every)
	ticker := time.NewTicker(a.Every)
	defer ticker.Stop()
	for errors.Is(err, a.Reason) {
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-ticker.C:
		}
		found, err = look()
	}
	return found, err
}
