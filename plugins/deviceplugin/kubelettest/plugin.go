package kubelettest

import (
	"context"

	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Plugin is a device plugin that registered, as the kubelet holds it.
type Plugin struct {
	Request *v1beta1.RegisterRequest
	Socket  string // its path
	Options *v1beta1.DevicePluginOptions
	Client  v1beta1.DevicePluginClient
	Lists   <-chan []*v1beta1.Device // every device list; closed when the stream ends

	conn   *grpc.ClientConn
	cancel context.CancelFunc
}

// Watch opens one more device list stream, until ctx is done.
func (p *Plugin) Watch(ctx context.Context) (<-chan []*v1beta1.Device, error) {
	stream, err := p.Client.ListAndWatch(ctx, &v1beta1.Empty{})
	if err != nil {
		return nil, err
	}
	lists := make(chan []*v1beta1.Device, 64)
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

// EndStream ends the device list stream that was opened at registration and keeps the connection.
func (p *Plugin) EndStream() { p.cancel() }

// Close lets the plugin go.
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
	if err != nil || len(answer.GetContainerResponses()) != 1 {
		return nil, err
	}
	return answer.GetContainerResponses()[0], nil
}
