package kubelet

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// maxMessage bounds an answer: a node with 250 pods and a thousand devices stays far below it
// (the kubelet's own clients use 16 MiB, pkg/kubelet/apis/podresources/constants.go).
const maxMessage = 16 << 20

// reconnect keeps the pause short that a restarting kubelet leaves behind; gRPC's own goes up to two minutes.
var reconnect = backoff.Config{
	BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
}

// refill is how long the kubelet's limiter takes to allow one more call.
const refill = 10 * time.Millisecond

// connection is one to a socket of the kubelet.
type connection struct {
	*grpc.ClientConn
	socket string
}

// dial makes a connection that is opened when it is first used.
func dial(socket string) (*connection, error) {
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", socket, err)
	}
	return &connection{ClientConn: conn, socket: socket}, nil
}

// life tells the process that serves the socket from the one before: it has made a new socket. It is "" where
// the socket cannot be looked at.
func (c *connection) life() string {
	info, err := os.Lstat(c.socket)
	if err != nil {
		return ""
	}
	life := info.ModTime().String()
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		life = fmt.Sprint(stat.Ino, " ", life)
	}
	return life
}

// patiently asks the kubelet, and again while its limiter refuses, until ctx is done.
func patiently[T any](ctx context.Context, conn *connection, ask func() (T, error)) (T, error) {
	conn.reach(ctx)
	for {
		answer, err := ask()
		if status.Code(err) != codes.ResourceExhausted {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(refill):
		}
	}
}

// reach ends the pause that a failed attempt to connect left behind, once the kubelet serves again: it may be
// about to admit a pod. A kubelet that does not serve costs an attempt to connect, not a wait.
func (c *connection) reach(ctx context.Context) {
	if c.GetState() != connectivity.TransientFailure {
		return
	}
	probe, err := new(net.Dialer).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return
	}
	_ = probe.Close()
	c.ResetConnectBackoff()
	c.WaitForStateChange(ctx, connectivity.TransientFailure)
}
