// SPDX-License-Identifier: Apache-2.0

// Package survive recovers panics, so that a fault costs one answer or one attempt instead of the daemon.
package survive

import (
	"errors"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// panicked is the error of a panic for the caller, on either side of a socket.
var panicked = status.New(codes.Internal, "internal error")

// Do calls a function and returns its error. Do logs a panic with the stack and returns an error for which
// [Panicked] reports true.
//
// Every goroutine of the coordination with nontrivial work runs it in Do.
func Do(log *slog.Logger, work func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			log.Error("coordination panicked", "panic", cause, "stack", string(debug.Stack()))
			err = panicked.Err()
		}
	}()
	return work()
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
