// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	kubeletgrpc "k8s.io/kubernetes/pkg/kubelet/apis/grpc"
	server "k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

// podResources is the kubelet's PodResources endpoint.
type podResources struct {
	grpc *grpc.Server
	done chan struct{}
}

// servePodResources serves as ListenAndServePodResources in pkg/kubelet/server/server.go does, but can be
// stopped.
func servePodResources(
	dir string, pods *pods, devices *devicemanager.ManagerImpl, cpus server.CPUsProvider, d *disturbance,
) (*podResources, error) {
	socket := filepath.Join(dir, server.Socket+".sock")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(socket); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("serve PodResources: %w", err)
	}
	ctx := klog.NewContext(context.Background(), klog.Background())
	limiter := kubeletgrpc.WithRateLimiter(ctx, "podresources", server.DefaultQPS, server.DefaultBurstTokens)
	p := &podResources{
		grpc: grpc.NewServer(limiter, grpc.ChainUnaryInterceptor(d.grpc)), done: make(chan struct{}),
	}
	api.RegisterPodResourcesListerServer(p.grpc,
		server.NewV1PodResourcesServer(ctx, server.PodResourcesProviders{
			Pods:             pods,
			Devices:          deviceProvider{devices},
			Cpus:             cpus,
			Memory:           nothing{},
			DynamicResources: nothing{},
		}))
	go p.serve(listener)
	return p, nil
}

func (p *podResources) serve(listener net.Listener) {
	defer close(p.done)
	if err := p.grpc.Serve(listener); err != nil {
		klog.Background().Error(err, "serve PodResources")
	}
}

func (p *podResources) stop() {
	p.grpc.Stop()
	<-p.done
}

// deviceProvider converts the device manager's data to the form of PodResources like the container manager
// (containerDevicesFromResourceDeviceInstances in pkg/kubelet/cm/container_manager.go): one entry per device
// and NUMA node.
type deviceProvider struct{ devices *devicemanager.ManagerImpl }

func (d deviceProvider) GetDevices(podUID, container string) []*api.ContainerDevices {
	return containerDevices(d.devices.GetDevices(podUID, container))
}

func containerDevices(instances devicemanager.ResourceDeviceInstances) []*api.ContainerDevices {
	var all []*api.ContainerDevices
	for resource, devices := range instances {
		for id, device := range devices {
			if device.GetTopology() == nil {
				all = append(all, &api.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}})
			}
			for _, node := range device.GetTopology().GetNodes() {
				topology := &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: node.GetID()}}}
				all = append(all, &api.ContainerDevices{
					ResourceName: resource, DeviceIds: []string{id}, Topology: topology,
				})
			}
		}
	}
	return all
}
