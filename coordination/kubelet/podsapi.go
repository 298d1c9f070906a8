// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
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
	corev1 "k8s.io/api/core/v1"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// PodsSocket is the Pods API socket of kubelet 1.37 below the kubelet's directory
// (pkg/kubelet/kubelet_getters.go, getPodsAPIDir).
const PodsSocket = "pods-api/pods-api.sock"

// podsSockets are the possible paths of the Pods API socket below the kubelet's directory, the second by
// KEP-4188.
var podsSockets = []string{PodsSocket, "pods/kubelet.sock"}

// PodsAPI is a client of the kubelet's Pods API (KEP-4188; feature gate PodsAPI, on by default from 1.37),
// version v1alpha1. The API lists the pods of the pod manager with complete specs, each from just before the
// admission. Unlike PodResources List, the call has no side effect.
type PodsAPI struct {
	dir   string
	conns []*connection // by podsSockets
}

// ErrNoPodsAPI means that the kubelet has no Pods API, as before 1.37.
var ErrNoPodsAPI = errors.New("no socket")

// NewPodsAPI returns a client for the sockets below a kubelet directory (/var/lib/kubelet). The first call
// connects.
func NewPodsAPI(kubeletDir string) (*PodsAPI, error) {
	p := &PodsAPI{dir: kubeletDir}
	for _, socket := range podsSockets {
		conn, err := dialSocket(filepath.Join(kubeletDir, socket))
		if err != nil {
			return nil, fmt.Errorf("open Pods API client: %w", err)
		}
		p.conns = append(p.conns, conn)
	}
	return p, nil
}

// Close closes the connections.
func (p *PodsAPI) Close() error {
	var failed error
	for _, conn := range p.conns {
		failed = errors.Join(failed, conn.Close())
	}
	return failed
}

// Pods calls each with every pod of the kubelet, including ended pods. A pod is valid during the call.
func (p *PodsAPI) Pods(ctx context.Context, each func(EncodedPod) error) error {
	conn, err := p.servedConnection()
	if err != nil {
		return err
	}
	toEach := func(pod []byte) error { return each(EncodedPod{content: pod}) }
	err = conn.splitAnswer(ctx, pods.Pods_ListPods_FullMethodName, &pods.ListPodsRequest{}, toEach)
	if err != nil {
		return fmt.Errorf("list pods of the Pods API: %w", err)
	}
	return nil
}

// ListPods calls each with every pod of the kubelet, over a new connection. A pod has the fields that
// EncodedPod.Decode names, and is valid during the call.
func ListPods(ctx context.Context, kubeletDir string, each func(*corev1.Pod)) error {
	api, err := NewPodsAPI(kubeletDir)
	if err != nil {
		return err
	}
	defer api.Close()
	var pod corev1.Pod
	return api.Pods(ctx, func(e EncodedPod) error {
		err := e.Decode(&pod)
		if err == nil {
			each(&pod)
		}
		return err
	})
}

// servedConnection returns the connection to the first existing socket. A kubelet without a Pods API costs
// one stat call.
func (p *PodsAPI) servedConnection() (*connection, error) {
	for i, socket := range podsSockets {
		info, err := os.Stat(filepath.Join(p.dir, socket))
		if err == nil && info.Mode().Type() == fs.ModeSocket {
			return p.conns[i], nil
		}
	}
	return nil, fmt.Errorf("find %s in %s: %w; kubelets serve the Pods API from 1.37 on, "+
		"or with the feature gate PodsAPI",
		podsSockets[0], p.dir, ErrNoPodsAPI)
}

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

// dialSocket returns a connection that opens on the first call.
func dialSocket(socket string) (*connection, error) {
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

// lifeOf identifies the process of sockets: a restarted kubelet creates new sockets. The result is "" if no
// socket is accessible.
func lifeOf(sockets ...string) (life string) {
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

// askPatiently calls the kubelet and repeats the call after a rejection by the kubelet's rate limiter. A
// failed call with the result of an earlier attempt to connect is repeated if the kubelet serves.
func askPatiently[T any](ctx context.Context, conn *connection, ask func() (T, error)) (T, error) {
	for repeats := 0; ; repeats++ {
		conn.endPause(ctx)
		answer, err := ask()
		limited := status.Code(err) == codes.ResourceExhausted && status.Convert(err).Message() == rateLimit
		early := status.Code(err) == codes.Unavailable
		if repeats == maxRepeats || !limited && !early || early && !conn.isServed(ctx) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(refill):
		}
	}
}

// splitAnswer makes a call, and calls each with every pod of the answer (splitMessage), which is not decoded:
// what a pod's author has put into it decides on the memory that this takes.
func (c *connection) splitAnswer(
	ctx context.Context, method string, question any, each func(pod []byte) error,
) error {
	answer, err := askPatiently(ctx, c, func() (answer mem.BufferSlice, err error) {
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

// endPause ends the pause after a failed attempt to connect as soon as the kubelet serves again, maybe to
// admit a pod. Without a serving kubelet, endPause costs one attempt to connect.
func (c *connection) endPause(ctx context.Context) {
	if c.GetState() == connectivity.TransientFailure && c.isServed(ctx) {
		c.ResetConnectBackoff()
		c.WaitForStateChange(ctx, connectivity.TransientFailure)
	}
}

// isServed reports whether the kubelet accepts connections.
func (c *connection) isServed(ctx context.Context) bool {
	probe, err := new(net.Dialer).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return false
	}
	_ = probe.Close()
	return true
}
