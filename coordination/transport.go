// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// reconnect is the pause between attempts to connect to the server, as short as a takeover.
var reconnect = backoff.Config{
	BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 200 * time.Millisecond,
}

// dial returns a client of the coordination socket in a run directory. The client connects on the first call
// and reconnects as needed.
func dial(runDir string) (*grpc.ClientConn, error) { return dialSocket(unixSocket{runDir}, runDir) }

// dialSocket returns a client of a socket; the name is for errors.
func dialSocket(socket Socket, name string) (*grpc.ClientConn, error) {
	conn, err := socket.Dial(
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, fmt.Errorf("open coordination client in %s: %w", name, err)
	}
	return conn, nil
}

// newTransport returns a gRPC server with a service, which checks clients, and limits clients and panics.
func newTransport(
	service api.CoordinationServer, clients credentials.TransportCredentials, log *slog.Logger,
) *grpc.Server {
	g := grpc.NewServer(append(limits(), grpc.Creds(clients), survivingCalls(log), survivingStreams(log))...)
	api.RegisterCoordinationServer(g, service)
	return g
}

// limits returns the options that protect a server from any message.
func limits() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}),
	}
}

// survivingCalls limits a panic to one call; the caller then chooses alone.
func survivingCalls(log *slog.Logger) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(
		ctx context.Context, q any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
	) (answer any, err error) {
		err = system.Survive(log, func() (err error) {
			answer, err = handle(ctx, q)
			return err
		})
		return answer, err
	})
}

// survivingStreams limits a panic to one stream; the plugin joins again.
func survivingStreams(log *slog.Logger) grpc.ServerOption {
	return grpc.ChainStreamInterceptor(func(
		server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler,
	) error {
		return system.Survive(log, func() error { return handle(server, stream) })
	})
}
