// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	// ErrBusy means that the call did not start: an earlier call was in progress until the deadline.
	ErrBusy = errors.New("an earlier question is still open")
	// ErrLate means that the call started and is still running.
	ErrLate = errors.New("no answer in time")
)

// Turn limits calls that may never return, such as reads from a hanging disk, to its capacity, usually one.
// The caller of a hanging call continues without a result, and the call occupies one goroutine regardless of
// the number of callers.
type Turn chan struct{}

// Busy reports whether any call is in progress.
func (t Turn) Busy() bool { return len(t) > 0 }

// Await waits until no call is in progress. Await returns ErrBusy if ctx is done first.
func (t Turn) Await(ctx context.Context) error {
	taken := 0
	defer func() {
		for range taken {
			<-t
		}
	}()
	for range cap(t) {
		if err := t.takeTurn(ctx); err != nil {
			return err
		}
		taken++
	}
	return nil
}

// takeTurn waits for the turn. The holder returns the turn with a receive.
func (t Turn) takeTurn(ctx context.Context) error {
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

// CallInTurn calls work when the turn has room and sends the result. If ctx is done first, the result is
// ErrBusy. CallInTurn does not recover a panic in work.
func CallInTurn[T any](ctx context.Context, turn Turn, work func() (T, error)) <-chan Result[T] {
	results := make(chan Result[T], 1)
	go func() {
		var r Result[T]
		r.Err = turn.takeTurn(ctx)
		if r.Err == nil {
			r.Value, r.Err = work()
			<-turn // before the result: the receiver may call again
		}
		results <- r
	}()
	return results
}

// AwaitResult waits for a result until ctx is done; then the error is ErrLate.
func AwaitResult[T any](ctx context.Context, results <-chan Result[T]) (none T, err error) {
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

// ErrHangs means that a read or write took too long.
var ErrHangs = errors.New("the disk does not answer; is it all right?")

// BoundRead returns a function that calls read, or a write, with a time limit. At most one call is in
// progress: while a call hangs, other callers wait for its end. A panic becomes an error.
func BoundRead[T any](log *slog.Logger, limit time.Duration, read func() (T, error)) func() (T, error) {
	turn := make(Turn, 1)
	return func() (none T, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		value, err := AwaitResult(ctx, CallInTurn(ctx, turn, func() (T, error) { return SurviveResult(log, read) }))
		if errors.Is(err, ErrBusy) || errors.Is(err, ErrLate) {
			return none, ErrHangs
		}
		return value, err
	}
}

// panicked is the error of a panic for the caller, on either side of a socket.
var panicked = status.New(codes.Internal, "internal error")

// Survive calls a function and returns its error. Survive logs a panic with the stack and returns an error
// for which [Panicked] reports true, so that a fault costs one answer or one attempt instead of the daemon.
//
// Survive wraps the nontrivial work of every goroutine of the coordination, and a plugin's part of the calls
// GetPreferredAllocation and Allocate.
func Survive(log *slog.Logger, work func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			log.Error("panicked", "panic", cause, "stack", string(debug.Stack()))
			err = panicked.Err()
		}
	}()
	return work()
}

// SurviveResult is Survive for a function with a result.
func SurviveResult[T any](log *slog.Logger, work func() (T, error)) (value T, err error) {
	err = Survive(log, func() (err error) {
		value, err = work()
		return err
	})
	return value, err
}

// Panicked reports whether an error results from a panic, in this process or at the other end of a socket.
// gRPC uses the same code for transport errors.
func Panicked(err error) bool {
	var of interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &of) {
		return false
	}
	s := of.GRPCStatus()
	return s.Code() == panicked.Code() && s.Message() == panicked.Message()
}

// Complaint is the last error of repeated work, so that each error is logged once. The zero value stands for
// work without an error so far.
type Complaint struct{ text string }

// IsNew stores the result of an attempt, nil for a success, and reports whether the result is an error other
// than the error of the attempt before.
func (c *Complaint) IsNew(err error) bool {
	before := c.text
	c.text = ""
	if err != nil {
		c.text = err.Error()
	}
	return c.text != "" && c.text != before
}

// The limits of kubelet calls. The kubelet has no deadline and starts no other pod during a call
// (pkg/kubelet/cm/devicemanager/endpoint.go).
const (
	// QuestionLimit is the maximum duration of a GetPreferredAllocation; a run directory that hangs adds a
	// second.
	QuestionLimit = 100 * time.Millisecond
	// CoordinatorLimit is the part for the coordinator's answer, with a takeover by the other plugin; later the
	// plugin chooses. The coordinator has the same time for each of the two reports of an Allocate.
	CoordinatorLimit = QuestionLimit * 8 / 10
)
