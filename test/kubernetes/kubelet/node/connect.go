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

// Connect adds a plugin to the device manager of this process, like a registration but without a socket. The
// plugin's ListAndWatch is not called.
func (n *Node) Connect(ctx context.Context, resource string, plugin v1beta1.DevicePluginClient) error {
	if err := n.devices.PluginConnected(ctx, resource, connected{plugin, resource}); err != nil {
		return fmt.Errorf("connect plugin of %s: %w", resource, err)
	}
	return nil
}

// Announce sends all devices of such a plugin, like a message of ListAndWatch.
func (n *Node) Announce(resource string, devices []*v1beta1.Device) {
	n.devices.PluginListAndWatchReceiver(klog.Background(), resource,
		&v1beta1.ListAndWatchResponse{Devices: devices})
}
