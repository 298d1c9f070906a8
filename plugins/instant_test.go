// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// instantFor names the kubelet's folder to TestInstant.
const instantFor = "TANDEM_TEST_INSTANT_FOR"

// TestInstant is no test, but a plugin that answers at once, where atOnce starts it.
func TestInstant(t *testing.T) {
	dir := os.Getenv(instantFor)
	if dir == "" {
		t.Skip("it is for the benchmarks")
	}
	if err := serveInstant(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
}

// instant prefers the first devices that it is offered.
type instant struct {
	v1beta1.UnimplementedDevicePluginServer
}

func (instant) GetPreferredAllocation(
	_ context.Context, q *v1beta1.PreferredAllocationRequest,
) (*v1beta1.PreferredAllocationResponse, error) {
	c := q.GetContainerRequests()[0]
	return &v1beta1.PreferredAllocationResponse{
		ContainerResponses: []*v1beta1.ContainerPreferredAllocationResponse{
			{DeviceIDs: c.GetAvailableDeviceIDs()[:c.GetAllocationSize()]},
		}}, nil
}

func (instant) Allocate(context.Context, *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{{}}}, nil
}

func (instant) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (instant) ListAndWatch(
	_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse],
) error {
	<-stream.Context().Done()
	return nil
}

// serveInstant answers until its standard input ends.
func serveInstant(ctx context.Context, dir string) error {
	const name = "instant.sock"
	listener, err := net.Listen("unix", filepath.Join(kubelettest.Plugins(dir), name))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	defer server.Stop()
	v1beta1.RegisterDevicePluginServer(server, instant{})
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("unix:"+filepath.Join(kubelettest.Plugins(dir), "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	request := &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: name, ResourceName: "example.com/instant",
	}
	if _, err := v1beta1.NewRegistrationClient(conn).Register(ctx, request); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// atOnce registers a plugin that answers at once, a process of its own, with a kubelet.
func atOnce(b *testing.B) *kubelettest.Plugin {
	b.Helper()
	dir := kubelettest.Dir(b)
	kubelet := kubelettest.Start(b, dir)
	plugin := exec.Command(os.Args[0], "-test.run=^TestInstant$")
	plugin.Env = append(os.Environ(), instantFor+"="+dir)
	plugin.Stderr = os.Stderr
	end, err := plugin.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := plugin.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = end.Close()
		if err := plugin.Wait(); err != nil {
			b.Errorf("the plugin that answers at once: %v", err)
		}
	})
	return kubelettest.Await(b, kubelet.Plugins)
}
