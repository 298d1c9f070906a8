// Package survive keeps a daemon alive when a part of it makes a mistake: what a panic costs is one answer or one attempt.
package survive

import (
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Do calls a function. A panic is logged, with where it happened, and becomes an error with [codes.Internal].
//
// Every goroutine of the coordination that does more than to hand something on runs its work in it.
func Do(log *slog.Logger, work func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			log.Error("coordination panicked", "panic", cause, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "internal error")
		}
	}()
	return work()
}
