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
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/checkpoint"
	"github.com/tandem-k8s/tandem/topology"
)

// pluginsFolder has the sockets of the kubelet and of the plugins, below the kubelet's directory.
const pluginsFolder = "device-plugins"

// LongestSocket is the longest path of a socket below the kubelet's directory that a plugin of a short
// resource name needs.
const LongestSocket = pluginsFolder + "/tandem.dev_rdma_vf-ABCDEFGHIJKL.sock"

// serving are the servers of a kubelet.
type serving struct {
	servers []*grpc.Server
	work    sync.WaitGroup
}

// serve removes the sockets of plugins, as the kubelet does at its start, and opens the kubelet's own.
func (k *Kubelet) serve() error {
	if err := removeSockets(filepath.Join(k.dir, pluginsFolder)); err != nil {
		return err
	}
	for socket, register := range map[string]func(*grpc.Server){
		filepath.Join(k.dir, pluginsFolder, "kubelet.sock"): func(s *grpc.Server) {
			v1beta1.RegisterRegistrationServer(s, k)
		},
		kubelet.PodResourcesSocket(k.dir): func(s *grpc.Server) {
			podresources.RegisterPodResourcesListerServer(s, podResources{k: k})
		},
		filepath.Join(k.dir, kubelet.PodsSocket): func(s *grpc.Server) { pods.RegisterPodsServer(s, k) },
	} {
		if err := k.listen(socket, register); err != nil {
			k.stop()
			return err
		}
	}
	return nil
}

func (s *serving) listen(socket string, register func(*grpc.Server)) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return fmt.Errorf("make the folder of a socket: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("open a socket of the kubelet: %w", err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true)) // a registration in progress starts a stream
	register(server)
	s.servers = append(s.servers, server)
	s.work.Go(func() { _ = server.Serve(listener) }) // until stopped
	return nil
}

func (s *serving) stop() {
	for _, server := range s.servers {
		server.Stop()
	}
	s.servers = nil
	s.work.Wait()
}

// removeSockets removes the sockets in a directory (CleanupPluginDirectory in
// pkg/kubelet/cm/devicemanager/manager.go).
func removeSockets(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for sockets of plugins: %w", err)
	}
	for _, entry := range entries {
		if entry.Type()&os.ModeSocket == 0 {
			continue
		}
		err := os.Remove(filepath.Join(dir, entry.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a plugin's socket: %w", err)
		}
	}
	return nil
}

// ListPods implements the Pods API.
func (k *Kubelet) ListPods(context.Context, *pods.ListPodsRequest) (*pods.ListPodsResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	answer := &pods.ListPodsResponse{}
	for _, p := range slices.Concat(k.pods, k.rejected) {
		object := p.object()
		encoded, err := object.Marshal()
		if err != nil {
			return nil, fmt.Errorf("encode pod %s: %w", p.Name, err)
		}
		answer.Pods = append(answer.Pods, encoded)
	}
	return answer, nil
}

// podResources implements the PodResources API.
type podResources struct {
	podresources.UnimplementedPodResourcesListerServer
	k *Kubelet
}

// List returns all pods and, like the kubelet, frees the devices of ended pods.
func (s podResources) List(
	context.Context, *podresources.ListPodResourcesRequest,
) (*podresources.ListPodResourcesResponse, error) {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	s.k.ended = nil
	answer := &podresources.ListPodResourcesResponse{}
	for _, p := range s.k.pods {
		answer.PodResources = append(answer.PodResources, p.resources())
	}
	return answer, nil
}

// Get returns one pod.
func (s podResources) Get(
	_ context.Context, r *podresources.GetPodResourcesRequest,
) (*podresources.GetPodResourcesResponse, error) {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	i := s.k.index(r.GetPodName())
	if i < 0 || r.GetPodNamespace() != Namespace {
		name := strings.Join([]string{r.GetPodNamespace(), r.GetPodName()}, "/")
		return nil, status.Errorf(codes.NotFound, "pod %s not found", name)
	}
	return &podresources.GetPodResourcesResponse{PodResources: s.k.pods[i].resources()}, nil
}

// GetAllocatableResources returns the healthy devices of all resources.
func (s podResources) GetAllocatableResources(
	context.Context, *podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	answer := &podresources.AllocatableResourcesResponse{}
	for name := range s.k.resources {
		answer.Devices = append(answer.Devices,
			&podresources.ContainerDevices{ResourceName: name, DeviceIds: s.k.healthy(name)})
	}
	return answer, nil
}

func (p *Pod) resources() *podresources.PodResources {
	container := &podresources.ContainerResources{Name: Container}
	for _, r := range p.Requests {
		if ids := p.devices[r.Resource]; len(ids) > 0 {
			container.Devices = append(container.Devices,
				&podresources.ContainerDevices{ResourceName: r.Resource, DeviceIds: ids})
		}
	}
	return &podresources.PodResources{
		Namespace: Namespace, Name: p.Name, Containers: []*podresources.ContainerResources{container},
	}
}

// write writes the checkpoint.
func (k *Kubelet) write() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.writeLocked()
}

func (k *Kubelet) writeLocked() error {
	var allocations []checkpoint.Allocation
	for _, p := range slices.Concat(k.pods, k.ended) {
		for _, r := range p.Requests {
			response, err := proto.Marshal(p.responses[r.Resource])
			if err != nil {
				return fmt.Errorf("encode the answer for pod %s: %w", p.Name, err)
			}
			if ids := p.devices[r.Resource]; len(ids) > 0 {
				allocations = append(allocations, checkpoint.Allocation{
					PodUID: p.uid, Container: Container, Resource: r.Resource, Devices: k.byNode(r.Resource, ids),
					Response: response,
				})
			}
		}
	}
	registered := map[string][]string{}
	for name := range k.resources {
		registered[name] = k.healthy(name)
	}
	return checkpoint.Write(k.dir, allocations, registered)
}

// byNode returns devices by their NUMA node, for the checkpoint.
func (k *Kubelet) byNode(name string, ids []string) map[string][]string {
	nodes := map[string]string{}
	if of := k.resources[name]; of != nil {
		for _, d := range of.devices {
			nodes[d.GetID()] = numaNode(d).String()
		}
	}
	by := map[string][]string{}
	for _, id := range ids {
		node, known := nodes[id]
		if !known {
			node = topology.NUMANode{}.String()
		}
		by[node] = append(by[node], id)
	}
	return by
}
