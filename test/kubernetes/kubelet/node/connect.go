// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// connected is a plugin in this process.
type connected struct {
	v1beta1.DevicePluginClient
	resource string
}

func (c connected) API() v1beta1.DevicePluginClient { return c.DevicePluginClient }
func (c connected) Resource() string                { return c.resource }
func (c connected) SocketPath() string              { return c.resource }

// Connect makes a plugin known to the device manager that is in this process: what its registration comes to,
// without a socket. Its ListAndWatch is not called.
func (n *Node) Connect(ctx context.Context, resource string, plugin v1beta1.DevicePluginClient) error {
	if err := n.devices.PluginConnected(ctx, resource, connected{plugin, resource}); err != nil {
		return fmt.Errorf("connect plugin of %s: %w", resource, err)
	}
	return nil
}

// Announce is a message of the ListAndWatch of such a plugin: all its devices.
func (n *Node) Announce(resource string, devices []*v1beta1.Device) {
	n.devices.PluginListAndWatchReceiver(klog.Background(), resource,
		&v1beta1.ListAndWatchResponse{Devices: devices})
}
