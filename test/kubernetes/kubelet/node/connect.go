// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// Plugin is a device plugin in this process.
type Plugin struct {
	v1beta1.DevicePluginClient
	Name string // of its resource
	// Prefer answers a question for size devices.
	Prefer func(ctx context.Context, available, must []string, size int) ([]string, error)
	// Take is called for the devices of a container.
	Take func(ctx context.Context, ids []string) error
}

// API returns the plugin.
func (p Plugin) API() v1beta1.DevicePluginClient { return p }

// Resource returns the name of the resource.
func (p Plugin) Resource() string { return p.Name }

// SocketPath returns the name of the resource: the plugin has no socket.
func (p Plugin) SocketPath() string { return p.Name }

// GetDevicePluginOptions says that the plugin is to be asked.
func (p Plugin) GetDevicePluginOptions(
	context.Context, *v1beta1.Empty, ...grpc.CallOption,
) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

// GetPreferredAllocation asks Prefer.
func (p Plugin) GetPreferredAllocation(
	ctx context.Context, r *v1beta1.PreferredAllocationRequest, _ ...grpc.CallOption,
) (*v1beta1.PreferredAllocationResponse, error) {
	q := r.ContainerRequests[0]
	ids, err := p.Prefer(ctx, q.AvailableDeviceIDs, q.MustIncludeDeviceIDs, int(q.AllocationSize))
	return &v1beta1.PreferredAllocationResponse{
		ContainerResponses: []*v1beta1.ContainerPreferredAllocationResponse{{DeviceIDs: ids}},
	}, err
}

// Allocate calls Take.
func (p Plugin) Allocate(
	ctx context.Context, r *v1beta1.AllocateRequest, _ ...grpc.CallOption,
) (*v1beta1.AllocateResponse, error) {
	return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{{}}},
		p.Take(ctx, r.ContainerRequests[0].DevicesIds)
}

// Connect adds a plugin to the device manager of this process, like a registration but without a socket.
func (n *Node) Connect(ctx context.Context, p Plugin) error {
	if err := n.devices.PluginConnected(ctx, p.Name, p); err != nil {
		return fmt.Errorf("connect plugin of %s: %w", p.Name, err)
	}
	return nil
}

// Announce sends all devices of such a plugin, like a message of ListAndWatch.
func (n *Node) Announce(resource string, devices []device.Device) {
	list := &v1beta1.ListAndWatchResponse{}
	for _, d := range devices {
		list.Devices = append(list.Devices, Device(d.ID, d.Healthy, d.NUMA))
	}
	n.devices.PluginListAndWatchReceiver(klog.Background(), resource, list)
}

// Device returns a device as plugins list it.
func Device(id string, healthy bool, at topology.NUMANode) *v1beta1.Device {
	listed := &v1beta1.Device{ID: id, Health: v1beta1.Unhealthy}
	if healthy {
		listed.Health = v1beta1.Healthy
	}
	if number, known := at.Number(); known {
		listed.Topology = &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: int64(number)}}}
	}
	return listed
}
