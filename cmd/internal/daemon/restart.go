// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// errRestart is the cause of the end of work that starts over.
var errRestart = errors.New("restart discovery")

// Restarting runs work until ctx is done or work fails. Work starts over on every SIGHUP, the signal of a
// changed configuration, and when work calls restart, for a change that it noticed.
func Restarting(
	ctx context.Context, log *slog.Logger, work func(ctx context.Context, restart func()) error,
) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		attempt, cancel := context.WithCancelCause(ctx)
		restart := func() { cancel(errRestart) }
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			select {
			case <-hangup:
				restart()
			case <-attempt.Done():
			}
		}()
		err := work(attempt, restart)
		cancel(nil)
		<-stopped
		if err != nil && !errors.Is(err, context.Canceled) || !errors.Is(context.Cause(attempt), errRestart) {
			return err
		}
		log.Info("restarting discovery; the configuration or the GPUs may have changed")
	}
}
