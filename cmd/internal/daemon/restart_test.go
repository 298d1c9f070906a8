// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"syscall"
	"testing"
)

// Work starts over for a SIGHUP and for a reason of its own, and ends with its error or with ctx.
func TestRestarting(t *testing.T) {
	log, broken := slog.New(slog.DiscardHandler), errors.New("broken")
	attempts := 0
	err := Restarting(t.Context(), log, func(ctx context.Context, restart func()) error {
		switch attempts++; attempts {
		case 1:
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			<-ctx.Done()
			return nil
		case 2:
			restart()
			<-ctx.Done()
			return ctx.Err()
		default:
			return broken
		}
	})
	if !errors.Is(err, broken) || attempts != 3 {
		t.Errorf("after %d attempts: %v", attempts, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = Restarting(ctx, log, func(ctx context.Context, _ func()) error {
		cancel()
		<-ctx.Done()
		return nil
	})
	if err != nil {
		t.Errorf("ended by its context: %v", err)
	}
}
