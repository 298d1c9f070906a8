// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	podsv1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
	kubeletgrpc "k8s.io/kubernetes/pkg/kubelet/apis/grpc"
	server "k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	podsapi "k8s.io/kubernetes/pkg/kubelet/apis/pods"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/pod"
)

// serve serves an endpoint of the kubelet in a folder, with its rate limiter, as ListenAndServePodResources
// and ListenAndServePodsServer in pkg/kubelet/server/server.go do, but can be stopped.
func serve(
	dir, socket string, limiter grpc.ServerOption, register func(*grpc.Server),
) (stop func(), err error) {
	file := filepath.Join(dir, socket+".sock")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(file); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", file)
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w", file, err)
	}
	s, done := grpc.NewServer(limiter), make(chan struct{})
	register(s)
	go func() {
		defer close(done)
		if err := s.Serve(listener); err != nil {
			klog.Background().Error(err, "serve", "socket", file)
		}
	}()
	return func() { s.Stop(); <-done }, nil
}

func (n *Node) servePodResources() (stop func(), err error) {
	ctx := klog.NewContext(context.Background(), klog.Background())
	limiter := kubeletgrpc.WithRateLimiter(ctx, "podresources", server.DefaultQPS, server.DefaultBurstTokens)
	return serve(filepath.Join(n.dir, "pod-resources"), server.Socket, limiter, func(s *grpc.Server) {
		api.RegisterPodResourcesListerServer(s, server.NewV1PodResourcesServer(ctx, server.PodResourcesProviders{
			Pods: n.pods, Devices: deviceProvider{n.devices}, Cpus: n.cpuProvider(), Memory: nothing{},
			DynamicResources: nothing{},
		}))
	})
}

// servePodsAPI serves the Pods API, whose WatchPods sends no changes.
func (n *Node) servePodsAPI(sources config.SourcesReady) (stop func(), err error) {
	ctx := klog.NewContext(context.Background(), klog.Background())
	limiter := kubeletgrpc.WithRateLimiter(ctx, "pods", podsapi.DefaultQPS, podsapi.DefaultBurstTokens)
	return serve(filepath.Join(n.dir, "pods-api"), podsapi.Socket, limiter, func(s *grpc.Server) {
		podsv1.RegisterPodsServer(s, newPodsServer(n.pods, sources))
	})
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

// podManager is the part of the kubelet's pod manager for the Pods API.
type podManager struct {
	pod.Manager
	pods *pods
}

func (m podManager) GetPods() []*v1.Pod { return m.pods.GetPods() }

func (m podManager) GetPodByUID(uid types.UID) (*v1.Pod, bool) { return m.pods.byUID(uid) }

// GetPodStatus corresponds to the status manager: a rejected or ended pod has failed, other pods have no
// status.
func (p *pods) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return v1.PodStatus{Phase: v1.PodFailed}, p.inactive[uid]
}
