// Package survive keeps a daemon alive when a part of it makes a mistake: what a panic costs is one answer or
// one attempt.
package survive

import (
	"errors"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// panicked is what a panic is to whoever asked for the work, on either side of a socket.
var panicked = status.New(codes.Internal, "internal error")

// Do calls a function. A panic is logged, with where it happened, and becomes an error of which [Panicked]
// reports true.
//
// Every goroutine of the coordination that does more than to hand something on runs its work in it.
func Do(log *slog.Logger, work func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			log.Error("coordination panicked", "panic", cause, "stack", string(debug.Stack()))
			err = panicked.Err()
		}
	}()
	return work()
}

// Panicked reports whether an error is that of a panic, here or at the other end of a socket. gRPC has the
// same code for faults of the transport.
func Panicked(err error) bool {
	var of interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &of) {
		return false
	}
	s := of.GRPCStatus()
	return s.Code() == panicked.Code() && s.Message() == panicked.Message()
}
