// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// deadlineKey is the key of a call's deadline, in nanoseconds of Unix time. The timeout of gRPC begins when
// the server reads the call. A server that was stopped would take a plugin that has given up for a waiting
// plugin, and decide about a container after the kubelet has gone on.
const deadlineKey = "tandem-deadline"

// sendDeadline sends the deadline of a call, if the call has one.
func sendDeadline(
	ctx context.Context, method string, q, answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	if deadline, ok := ctx.Deadline(); ok {
		ctx = metadata.AppendToOutgoingContext(ctx, deadlineKey, strconv.FormatInt(deadline.UnixNano(), 10))
	}
	return call(ctx, method, q, answer, conn, options...)
}

// untilDeadline returns a context that ends at the deadline which the client has sent, if any.
func untilDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	for _, sent := range metadata.ValueFromIncomingContext(ctx, deadlineKey) {
		if nanoseconds, err := strconv.ParseInt(sent, 10, 64); err == nil {
			return context.WithDeadline(ctx, time.Unix(0, nanoseconds))
		}
	}
	return context.WithCancel(ctx)
}
