// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// fakePlugin is a device plugin with nothing behind it: it proves the node, not Tandem.
type fakePlugin struct {
	v1beta1.UnimplementedDevicePluginServer
	resource string
	devices  []*v1beta1.Device
	calls    *calls
	prefer   func(available, mustInclude []string, size int) []string // nil: no GetPreferredAllocation
	socket   string                                                   // its name; "" for one of the resource's
	ended    chan struct{}
	stop     func() // ends the plugin, which the end of the test does too
}

// calls remembers which resources the kubelet asked, in order. Several plugins share one.
type calls struct {
	mu        sync.Mutex
	resources []string
}

func (c *calls) add(resource string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resources = append(c.resources, resource)
}

// take returns the calls since the last take.
func (c *calls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.resources
	c.resources = nil
	return taken
}

// fakeDevices are perNode devices on each of two NUMA nodes, "<prefix>-<node>-<index>".
func fakeDevices(prefix string, perNode int, topology bool) []*v1beta1.Device {
	var devices []*v1beta1.Device
	for node := range int64(2) {
		for i := range perNode {
			device := &v1beta1.Device{ID: fmt.Sprintf("%s-%d-%02d", prefix, node, i), Health: v1beta1.Healthy}
			if topology {
				device.Topology = &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: node}}}
			}
			devices = append(devices, device)
		}
	}
	return devices
}

// run serves the plugin and registers it until the test is over.
func (p *fakePlugin) run(t *testing.T, kubeletDir string) {
	t.Helper()
	dir := filepath.Join(kubeletDir, "device-plugins")
	name := cmp.Or(p.socket, filepath.Base(p.resource)+".sock")
	listener, err := net.Listen("unix", filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	p.ended = make(chan struct{})
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	p.stop = sync.OnceFunc(func() {
		close(p.ended)
		server.Stop()
		<-served
	})
	t.Cleanup(p.stop)
	if err := p.register(t.Context(), filepath.Join(dir, "kubelet.sock"), name); err != nil {
		t.Fatal(err)
	}
}

func (p *fakePlugin) register(ctx context.Context, kubelet, endpoint string) error {
	conn, err := grpc.NewClient("unix:"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: endpoint, ResourceName: p.resource,
	})
	return err
}

func (p *fakePlugin) GetDevicePluginOptions(
	context.Context, *v1beta1.Empty,
) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: p.prefer != nil}, nil
}

func (p *fakePlugin) ListAndWatch(
	_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse],
) error {
	if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-stream.Context().Done():
	}
	return nil
}

func (p *fakePlugin) GetPreferredAllocation(
	_ context.Context, r *v1beta1.PreferredAllocationRequest,
) (*v1beta1.PreferredAllocationResponse, error) {
	q := r.ContainerRequests[0]
	chosen := p.prefer(q.AvailableDeviceIDs, q.MustIncludeDeviceIDs, int(q.AllocationSize))
	return &v1beta1.PreferredAllocationResponse{
		ContainerResponses: []*v1beta1.ContainerPreferredAllocationResponse{{DeviceIDs: chosen}},
	}, nil
}

func (p *fakePlugin) Allocate(
	_ context.Context, r *v1beta1.AllocateRequest,
) (*v1beta1.AllocateResponse, error) {
	p.calls.add(p.resource)
	response := &v1beta1.ContainerAllocateResponse{Envs: map[string]string{}}
	for _, id := range r.ContainerRequests[0].DevicesIds {
		response.Envs[id] = p.resource
	}
	return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{response}}, nil
}
