// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"log/slog"
	"time"

	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// resync is the message of the controller of slices (k8s.io/dynamic-resource-allocation/resourceslice) before
// a repetition, and resyncLevel is the message's level, klog's 5.
const (
	resync      = "Scheduled re-sync"
	resyncLevel = slog.Level(-5)
)

// ticking is a log in which the message of a repetition takes time: the controller repeats a check until the
// clock is beyond a moment, and under the virtual clock no work takes time.
type ticking struct{ slog.Handler }

// Enabled admits the message.
func (t ticking) Enabled(ctx context.Context, level slog.Level) bool {
	return level == resyncLevel || t.Handler.Enabled(ctx, level)
}

// Handle takes time for the message, and passes all others on.
func (t ticking) Handle(ctx context.Context, record slog.Record) error {
	if record.Message == resync {
		seeds.Sleep(time.Microsecond)
	}
	if !t.Handler.Enabled(ctx, record.Level) {
		return nil
	}
	return t.Handler.Handle(ctx, record)
}

// WithAttrs returns a handler that takes time too.
func (t ticking) WithAttrs(attrs []slog.Attr) slog.Handler {
	return ticking{t.Handler.WithAttrs(attrs)}
}

// WithGroup returns a handler that takes time too.
func (t ticking) WithGroup(name string) slog.Handler { return ticking{t.Handler.WithGroup(name)} }
