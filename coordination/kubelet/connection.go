// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

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
		grpc.WithInitialWindowSize(MaxPods), grpc.WithInitialConnWindowSize(MaxPods), // a list without pauses
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxPods)))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", socket, err)
	}
	return &connection{ClientConn: conn, socket: socket}, nil
}

// life identifies the process of sockets: a restarted kubelet creates new sockets. The result is "" if no
// socket is accessible.
func life(sockets ...string) (life string) {
	for _, socket := range sockets {
		info, err := os.Lstat(socket)
		if err != nil {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			life += fmt.Sprint(stat.Ino, " ")
		}
		life += info.ModTime().String()
	}
	return life
}

// maxRepeats limits the repeated calls to a serving kubelet.
const maxRepeats = 3

// rateLimit is the message of the kubelet's rate limiter (pkg/kubelet/apis/grpc/ratelimit.go). gRPC itself
// uses the limiter's code for answers that are too long, and a repeated call has the same one.
const rateLimit = "rejected by rate limit"

// patiently calls the kubelet and repeats the call after a rejection by the kubelet's rate limiter. A failed
// call with the result of an earlier attempt to connect is repeated if the kubelet serves.
func patiently[T any](ctx context.Context, conn *connection, ask func() (T, error)) (T, error) {
	for repeats := 0; ; repeats++ {
		conn.reach(ctx)
		answer, err := ask()
		limited := status.Code(err) == codes.ResourceExhausted && status.Convert(err).Message() == rateLimit
		early := status.Code(err) == codes.Unavailable
		if repeats == maxRepeats || !limited && !early || early && !conn.serves(ctx) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(refill):
		}
	}
}

// split makes a call, and calls each with every pod of the answer (splitMessage), which is not decoded: what
// a pod's author has put into it decides on the memory that this takes.
func (c *connection) split(
	ctx context.Context, method string, question any, each func(pod []byte) error,
) error {
	answer, err := patiently(ctx, c, func() (answer mem.BufferSlice, err error) {
		err = c.Invoke(ctx, method, question, &answer, grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2("proto")}))
		return answer, err
	})
	if status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max") {
		return errTooLarge("the list", MaxPods) // the error of gRPC
	}
	if err != nil {
		return err
	}
	defer answer.Free()
	reader := answer.Reader()
	defer reader.Close()
	return splitMessage(reader, each)
}

// rawCodec is gRPC's codec, and leaves an answer as gRPC has received it.
type rawCodec struct{ encoding.CodecV2 }

// Unmarshal keeps the data in a *mem.BufferSlice, whose owner frees it.
func (rawCodec) Unmarshal(data mem.BufferSlice, into any) error {
	kept, ok := into.(*mem.BufferSlice)
	if !ok {
		return fmt.Errorf("keep an answer in %T", into)
	}
	data.Ref()
	*kept = data
	return nil
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
