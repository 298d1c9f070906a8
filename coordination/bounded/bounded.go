// Package bounded gives up on calls that may never end: of a disk, a library or a plugin that hangs. Who
// asked goes on without an answer, and what hangs keeps one goroutine, however often it is asked.
package bounded

import (
	"context"
	"errors"
)

var (
	// ErrBusy means that the call did not begin: one before it was in progress for as long as could be
	// waited.
	ErrBusy = errors.New("an earlier question is still open")
	// ErrLate means that the call began, and goes on.
	ErrLate = errors.New("no answer in time")
)

// Turn is that of one call among several of which one is in progress at most. Make it with room for one
// token.
type Turn chan struct{}

// Busy reports whether a call is in progress.
func (t Turn) Busy() bool { return len(t) > 0 }

// Await waits until no call is in progress, and returns ErrBusy where that lasts until ctx is done.
func (t Turn) Await(ctx context.Context) error {
	if err := t.take(ctx); err != nil {
		return err
	}
	<-t
	return nil
}

func (t Turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ErrBusy
	}
}

// Result is what a call returned.
type Result[T any] struct {
	Value T
	Err   error
}

// Go calls work once it is its turn, and sends the result. Where ctx is done before that, the result is
// ErrBusy. A panic in work is the caller's business.
func Go[T any](ctx context.Context, turn Turn, work func() (T, error)) <-chan Result[T] {
	results := make(chan Result[T], 1)
	go func() {
		var r Result[T]
		if r.Err = turn.take(ctx); r.Err == nil {
			r.Value, r.Err = work()
			<-turn // before the result: who has it may ask again
		}
		results <- r
	}()
	return results
}

// Wait waits for a result until ctx is done: then it returns ErrLate.
func Wait[T any](ctx context.Context, results <-chan Result[T]) (none T, err error) {
	select {
	case r := <-results:
		return r.Value, r.Err
	case <-ctx.Done():
	}
	select {
	case r := <-results: // both were there: the machine is busy, what was asked is all right
		return r.Value, r.Err
	default:
		return none, ErrLate
	}
}
