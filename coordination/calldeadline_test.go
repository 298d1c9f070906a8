// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// A server that reads a call late knows that the client has given up.
func TestDeadlineIsTheClients(t *testing.T) {
	for want, deadline := range map[error]time.Time{
		context.DeadlineExceeded: time.Now().Add(-time.Second), nil: time.Now().Add(time.Hour),
	} {
		ctx, cancel := context.WithDeadline(t.Context(), deadline)
		defer cancel()
		var sent metadata.MD
		_ = sendDeadline(ctx, "", nil, nil, nil, func(
			ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption,
		) error {
			sent, _ = metadata.FromOutgoingContext(ctx)
			return nil
		})
		read, cancel := untilDeadline(metadata.NewIncomingContext(t.Context(), sent))
		defer cancel()
		if err := read.Err(); !errors.Is(err, want) {
			t.Errorf("deadline %s: %v", deadline, err)
		}
	}
}
