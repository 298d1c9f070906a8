// SPDX-License-Identifier: Apache-2.0

package bounded

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tandem-k8s/tandem/coordination/survive"
)

// ErrHangs means that a read took too long.
var ErrHangs = errors.New("reading does not end; is the disk all right?")

// Read returns a function that calls read with a time limit. At most one read is in progress: while one
// hangs, other callers wait for it. A panic in read is returned as an error.
func Read[T any](log *slog.Logger, limit time.Duration, read func() (T, error)) func() (T, error) {
	turn := make(Turn, 1)
	surviving := func() (value T, err error) {
		err = survive.Do(log, func() (err error) {
			value, err = read()
			return err
		})
		return value, err
	}
	return func() (none T, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		value, err := Wait(ctx, Go(ctx, turn, surviving))
		if errors.Is(err, ErrBusy) || errors.Is(err, ErrLate) {
			return none, ErrHangs
		}
		return value, err
	}
}
