// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// AnswerTime is how long a plugin may take to listen at its socket, as in the kubelet (dialTimeoutDuration in
// pkg/kubelet/pluginmanager/operationexecutor). The socket file exists before the plugin listens.
const AnswerTime = 10 * time.Second

// mostLists is how many device lists of a plugin may wait to be received.
const mostLists = 64

// Plugin is a registered device plugin.
type Plugin struct {
	Request *v1beta1.RegisterRequest // for a plugin of the plugin watcher, converted from its PluginInfo
	Socket  string                   // path
	Options *v1beta1.DevicePluginOptions
	Client  v1beta1.DevicePluginClient
	Lists   <-chan []*v1beta1.Device // all device lists; closed at the end of the stream

	conn   *grpc.ClientConn
	cancel context.CancelFunc
}

// Connect connects to a plugin's socket as the kubelet does at the registration: it reads the plugin's
// options and opens the stream of device lists.
func Connect(ctx context.Context, socket string, request *v1beta1.RegisterRequest) (*Plugin, error) {
	conn, err := Dial(socket)
	if err != nil {
		return nil, err
	}
	client := v1beta1.NewDevicePluginClient(conn)
	options, err := client.GetDevicePluginOptions(ctx, &v1beta1.Empty{})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	streaming, cancel := context.WithCancel(context.Background())
	p := &Plugin{Request: request, Socket: socket, Options: options, Client: client, conn: conn, cancel: cancel}
	p.Lists, err = p.Watch(streaming)
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Dial returns a connection that retries soon.
func Dial(socket string) (*grpc.ClientConn, error) {
	soon := grpc.ConnectParams{
		Backoff: backoff.Config{
			BaseDelay: 10 * time.Millisecond, Multiplier: 2, MaxDelay: 100 * time.Millisecond,
		},
		MinConnectTimeout: AnswerTime,
	}
	return grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(soon))
}

// Watch opens another device list stream until ctx is done.
func (p *Plugin) Watch(ctx context.Context) (<-chan []*v1beta1.Device, error) {
	stream, err := p.Client.ListAndWatch(ctx, &v1beta1.Empty{})
	if err != nil {
		return nil, err
	}
	lists := make(chan []*v1beta1.Device, mostLists)
	go func() {
		defer close(lists)
		for {
			answer, err := stream.Recv()
			if err != nil {
				return
			}
			lists <- answer.GetDevices()
		}
	}()
	return lists, nil
}

// EndStream ends the device list stream of the registration and keeps the connection.
func (p *Plugin) EndStream() { p.cancel() }

// Close ends the stream and the connection.
func (p *Plugin) Close() {
	p.cancel()
	_ = p.conn.Close()
}

// Prefer calls GetPreferredAllocation for one container.
func (p *Plugin) Prefer(ctx context.Context, available, mustInclude []string, size int) ([]string, error) {
	answer, err := p.Client.GetPreferredAllocation(ctx, &v1beta1.PreferredAllocationRequest{
		ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: available, MustIncludeDeviceIDs: mustInclude, AllocationSize: int32(size),
		}},
	})
	if err != nil || len(answer.GetContainerResponses()) != 1 {
		return nil, err
	}
	return answer.GetContainerResponses()[0].GetDeviceIDs(), nil
}

// Allocate calls Allocate for one container.
func (p *Plugin) Allocate(ctx context.Context, ids ...string) (*v1beta1.ContainerAllocateResponse, error) {
	answer, err := p.Client.Allocate(ctx, &v1beta1.AllocateRequest{
		ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: ids}},
	})
	switch {
	case err != nil:
		return nil, err
	case len(answer.GetContainerResponses()) != 1:
		return nil, fmt.Errorf("allocate: %d answers for one container", len(answer.GetContainerResponses()))
	default:
		return answer.GetContainerResponses()[0], nil
	}
}
