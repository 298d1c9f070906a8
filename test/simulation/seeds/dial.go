// SPDX-License-Identifier: Apache-2.0

package seeds

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// Dial returns a client of a network in memory. The pauses between attempts to connect are not random.
func Dial(
	connect func(ctx context.Context) (net.Conn, error), options ...grpc.DialOption,
) (*grpc.ClientConn, error) {
	steady := backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, MaxDelay: 200 * time.Millisecond}
	return grpc.NewClient("passthrough:///node", append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: steady, MinConnectTimeout: time.Second}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return connect(ctx) }))...)
}
