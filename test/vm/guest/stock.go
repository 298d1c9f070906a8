// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// serveStock stands in for the stock plugins: Tandem's resources with the same IDs, and the required calls
// only. It registers once, like the stock plugins.
func serveStock() error {
	gpus, err := filepath.Glob("/sys/bus/pci/drivers/amdgpu/0*")
	if err != nil {
		return err
	}
	vfs, err := filepath.Glob("/sys/bus/pci/devices/*/physfn")
	if err != nil {
		return err
	}
	for i := range vfs {
		vfs[i] = filepath.Dir(vfs[i])
	}
	ended := make(chan error, 2)
	for _, plugin := range []*stockPlugin{
		{resource: "amd.com/gpu", functions: gpus, give: giveGPUs},
		{resource: "tandem.dev/rdma_vf", functions: vfs, give: giveVFs},
	} {
		if err := plugin.start(ended); err != nil {
			return fmt.Errorf("offer %s: %w", plugin.resource, err)
		}
	}
	fmt.Fprintln(os.Stdout, time.Now().Format(time.RFC3339Nano), "msg=registered") // for the host
	return <-ended
}

type stockPlugin struct {
	v1beta1.UnimplementedDevicePluginServer
	resource  string
	functions []string // folders in sysfs
	give      func(*v1beta1.ContainerAllocateResponse, []string) error
}

func (p *stockPlugin) start(ended chan<- error) error {
	endpoint := "stock-" + strings.ReplaceAll(p.resource, "/", "-") + ".sock"
	if err := os.RemoveAll(v1beta1.DevicePluginPath + endpoint); err != nil {
		return err
	}
	listener, err := net.Listen("unix", v1beta1.DevicePluginPath+endpoint)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, p)
	go func() { ended <- server.Serve(listener) }()
	connection, err := grpc.NewClient("unix://"+v1beta1.KubeletSocket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = v1beta1.NewRegistrationClient(connection).Register(ctx,
		&v1beta1.RegisterRequest{Version: v1beta1.Version, Endpoint: endpoint, ResourceName: p.resource})
	return err
}

// GetDevicePluginOptions returns no options.
func (p *stockPlugin) GetDevicePluginOptions(
	context.Context, *v1beta1.Empty,
) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

// ListAndWatch sends the devices by their addresses, once: nothing changes.
func (p *stockPlugin) ListAndWatch(
	_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse],
) error {
	list := &v1beta1.ListAndWatchResponse{}
	for _, function := range p.functions {
		list.Devices = append(list.Devices, &v1beta1.Device{ID: filepath.Base(function), Health: v1beta1.Healthy})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate answers for each container.
func (p *stockPlugin) Allocate(
	_ context.Context, request *v1beta1.AllocateRequest,
) (*v1beta1.AllocateResponse, error) {
	response := &v1beta1.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		answer := &v1beta1.ContainerAllocateResponse{}
		if err := p.give(answer, container.DevicesIds); err != nil {
			return nil, err
		}
		response.ContainerResponses = append(response.ContainerResponses, answer)
	}
	return response, nil
}

// giveGPUs adds the node that all AMD GPUs share, if present, like AMD's plugin.
func giveGPUs(answer *v1beta1.ContainerAllocateResponse, ids []string) error {
	give := func(node string) {
		answer.Devices = append(answer.Devices, &v1beta1.DeviceSpec{
			HostPath: node, ContainerPath: node, Permissions: "rw",
		})
	}
	const shared = "/dev/kfd"
	if _, err := os.Stat(shared); err == nil {
		give(shared)
	}
	for _, id := range ids {
		nodes, err := filepath.Glob("/sys/bus/pci/devices/" + id + "/drm/renderD*")
		if err != nil || len(nodes) != 1 {
			return fmt.Errorf("want one render node of %s: %v %w", id, nodes, err)
		}
		give("/dev/dri/" + filepath.Base(nodes[0]))
	}
	return nil
}

func giveVFs(answer *v1beta1.ContainerAllocateResponse, ids []string) error {
	answer.Envs = map[string]string{"PCIDEVICE_TANDEM_DEV_RDMA_VF": strings.Join(ids, ",")}
	return nil
}
