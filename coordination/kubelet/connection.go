// SPDX-License-Identifier: Apache-2.0

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

// maxMessage limits the size of an answer: a node with 250 pods and a thousand devices needs far less (the
// kubelet's own clients use 16 MiB, pkg/kubelet/apis/podresources/constants.go).
const maxMessage = 16 << 20

// reconnect limits the reconnect pause after a kubelet restart; gRPC's default grows to two minutes.
var reconnect = backoff.Config{
	BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
}

// refill is the time until the kubelet's rate limiter allows one more call, and the pause before a repeated
// call to a serving kubelet.
const refill = 10 * time.Millisecond

// connection is a connection to a socket of the kubelet.
type connection struct {
	*grpc.ClientConn
	socket string
}

// dial returns a connection that opens on the first call.
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

// life identifies the process of the socket: a restarted kubelet creates a new socket. The result is "" if
// the socket is not accessible.
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

// maxRepeats limits the repeated calls to a serving kubelet before gRPC is connected.
const maxRepeats = 3

// patiently calls the kubelet and repeats the call after a rejection by the kubelet's rate limiter, until ctx
// is done. A failed call with the result of an earlier attempt to connect is repeated if the kubelet serves.
func patiently[T any](ctx context.Context, conn *connection, ask func() (T, error)) (T, error) {
	for repeats := 0; ; {
		conn.reach(ctx)
		answer, err := ask()
		switch status.Code(err) {
		case codes.ResourceExhausted:
		case codes.Unavailable:
			if repeats++; repeats > maxRepeats || !conn.serves(ctx) {
				return answer, err
			}
		default:
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(refill):
		}
	}
}

// reach ends the pause after a failed attempt to connect as soon as the kubelet serves again, maybe to admit
// a pod. Without a serving kubelet, reach costs one attempt to connect.
func (c *connection) reach(ctx context.Context) {
	if c.GetState() == connectivity.TransientFailure && c.serves(ctx) {
		c.ResetConnectBackoff()
		c.WaitForStateChange(ctx, connectivity.TransientFailure)
	}
}

// serves reports whether the kubelet accepts connections.
func (c *connection) serves(ctx context.Context) bool {
	probe, err := new(net.Dialer).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return false
	}
	_ = probe.Close()
	return true
}
