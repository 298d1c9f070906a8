// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/api"
)

// Status returns the complete state of the server of a run directory, or an error if no plugin serves or
// takes over within a second.
func Status(ctx context.Context, runDir string) (*api.StatusResponse, error) {
	return call(ctx, runDir, func(client api.CoordinationClient) (*api.StatusResponse, error) {
		return client.Status(ctx, &api.StatusRequest{})
	})
}

// Explain returns the decisions for a pod from the server of a run directory; an empty namespace or container
// means any.
func Explain(ctx context.Context, runDir, namespace, pod, container string) (*api.ExplainResponse, error) {
	return call(ctx, runDir, func(client api.CoordinationClient) (*api.ExplainResponse, error) {
		return client.Explain(ctx, &api.ExplainRequest{Namespace: namespace, Pod: pod, Container: container})
	})
}

// call makes one call to the server of a run directory. Without a server, call waits for a takeover by the
// other plugin, as during an update.
func call[T any](
	ctx context.Context, runDir string, ask func(api.CoordinationClient) (T, error),
) (answer T, err error) {
	conn, err := dialRunDir(runDir)
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	awaitServer(ctx, conn)
	answer, err = ask(api.NewCoordinationClient(conn))
	switch status.Code(err) {
	case codes.OK:
		return answer, nil
	case codes.NotFound, codes.InvalidArgument:
		return answer, errors.New(status.Convert(err).Message())
	case codes.Unavailable:
		return answer, explainSilence(runDir)
	case codes.Unimplemented:
		return answer, fmt.Errorf("ask %s: the running plugin has an older version without this call",
			SocketPath(runDir))
	default:
		return answer, fmt.Errorf("ask %s: %w", SocketPath(runDir), err)
	}
}

// awaitServer connects, and waits for the duration of a takeover.
func awaitServer(ctx context.Context, conn *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(ctx, electionBurst)
	defer cancel()
	conn.Connect()
	state := conn.GetState()
	for state != connectivity.Ready && conn.WaitForStateChange(ctx, state) {
		state = conn.GetState()
	}
}

// explainSilence explains why the server of a run directory does not answer: only root and the plugins' user
// may access the directory and the socket, so other users cannot know whether a server exists.
func explainSilence(runDir string) error {
	socket := SocketPath(runDir)
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("ask %s: user %d has no permission; run the command as root or in a plugin's pod: %w",
			socket, os.Geteuid(), fs.ErrPermission)
	}
	if err == nil {
		conn.Close()
	}
	return fmt.Errorf("ask %s: no answer; does a plugin with this --run-dir run on this node?", socket)
}

// reconnect is the pause between attempts to connect to the server, as short as a takeover.
var reconnect = backoff.Config{
	BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 200 * time.Millisecond,
}

// dialRunDir returns a client of the coordination socket in a run directory. The client connects on the first
// call and reconnects as needed.
func dialRunDir(runDir string) (*grpc.ClientConn, error) {
	return dialSocket(unixSocket{runDir}, runDir)
}

// dialSocket returns a client of a socket; the name is for errors.
func dialSocket(socket Socket, name string) (*grpc.ClientConn, error) {
	conn, err := socket.Dial(
		grpc.WithChainUnaryInterceptor(sendDeadline),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, fmt.Errorf("open coordination client in %s: %w", name, err)
	}
	return conn, nil
}
