// SPDX-License-Identifier: Apache-2.0

// Package bounded limits the time of calls that may never return, such as reads from a hanging disk. The
// caller continues without a result, and a hanging call occupies one goroutine regardless of the number of
// callers.
package bounded

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tandem-k8s/tandem/coordination/survive"
)

var (
	// ErrBusy means that the call did not start: an earlier call was in progress until the deadline.
	ErrBusy = errors.New("an earlier question is still open")
	// ErrLate means that the call started and is still running.
	ErrLate = errors.New("no answer in time")
)

// Turn serializes calls: at most one is in progress. Create it with room for one token.
type Turn chan struct{}

// Busy reports whether a call is in progress.
func (t Turn) Busy() bool { return len(t) > 0 }

// Await waits until no call is in progress. It returns ErrBusy if ctx is done first.
func (t Turn) Await(ctx context.Context) error {
	if err := t.take(ctx); err != nil {
		return err
	}
	<-t
	return nil
}

// take waits for the turn. The holder returns the turn with a receive.
func (t Turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ErrBusy
	}
}

// Result is the result of a call.
type Result[T any] struct {
	Value T
	Err   error
}

// Go calls work when no other call is in progress and sends the result. If ctx is done first, the result is
// ErrBusy. Go does not recover a panic in work.
func Go[T any](ctx context.Context, turn Turn, work func() (T, error)) <-chan Result[T] {
	results := make(chan Result[T], 1)
	go func() {
		var r Result[T]
		if r.Err = turn.take(ctx); r.Err == nil {
			r.Value, r.Err = work()
			<-turn // before the result: the receiver may call again
		}
		results <- r
	}()
	return results
}

// Wait waits for a result until ctx is done; then it returns ErrLate.
func Wait[T any](ctx context.Context, results <-chan Result[T]) (none T, err error) {
	select {
	case r := <-results:
		return r.Value, r.Err
	case <-ctx.Done():
	}
	select {
	case r := <-results: // both were ready on a busy machine; the result counts
		return r.Value, r.Err
	default:
		return none, ErrLate
	}
}

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
