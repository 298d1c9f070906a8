// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/topology"
)

// fakePlugin is a device plugin with nothing behind it.
type fakePlugin struct {
	v1beta1.UnimplementedDevicePluginServer
	resource string
	devices  []*v1beta1.Device
	prefer   func(available, mustInclude []string, size int) []string // nil: no GetPreferredAllocation
	socket   string                                                   // its name; "" for one of the resource's
	ended    chan struct{}
	stop     func() // ends the plugin, which the end of the test does too
}

// The resources of fake plugins.
const (
	fakeGPU = "example.com/gpu"
	fakeVF  = "example.com/vf"
)

// startNode starts a kubelet, which ends with the test.
func startNode(t *testing.T, options node.Options) (n *node.Node, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "")
	must(t, err)
	n, err = node.Start(dir, options)
	must(t, err)
	t.Cleanup(func() { must(t, n.Stop()) })
	return n, dir
}

// deadline bounds every wait of these tests: nothing here takes longer unless it hangs.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func podResourcesClient(t *testing.T, dir string) podresources.PodResourcesListerClient {
	t.Helper()
	socket := "unix:" + filepath.Join(dir, "pod-resources", "kubelet.sock")
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return podresources.NewPodResourcesListerClient(conn)
}

// fakeDevices are perNode devices on each of two NUMA nodes, "<prefix>-<node>-<index>".
func fakeDevices(prefix string, perNode int) []*v1beta1.Device {
	var devices []*v1beta1.Device
	for number := range 2 {
		for i := range perNode {
			id := fmt.Sprintf("%s-%d-%02d", prefix, number, i)
			devices = append(devices, node.Device(id, true, topology.Node(number)))
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
	must(t, err)
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
	must(t, p.register(t.Context(), filepath.Join(dir, "kubelet.sock"), name))
}

// offer serves the plugin until the test is over, and waits until the kubelet has all its devices.
func (p *fakePlugin) offer(t *testing.T, n *node.Node, dir string) {
	t.Helper()
	p.run(t, dir)
	must(t, n.WaitAllocatable(deadline(t), p.resource, len(p.devices)))
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
	response := &v1beta1.ContainerAllocateResponse{Envs: map[string]string{}}
	for _, id := range r.ContainerRequests[0].DevicesIds {
		response.Envs[id] = p.resource
	}
	return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{response}}, nil
}
