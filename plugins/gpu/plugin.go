// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"log/slog"
	"slices"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
)

// Plugin offers one resource name of a node's GPUs. It implements deviceplugin.Resource and
// deviceplugin.Preferrer.
type Plugin struct {
	name   string
	gpus   *GPUs
	member *coordination.Member
	log    *slog.Logger
}

// NewPlugin returns the plugin of one resource name. The plugin takes part in coordination as member.
func NewPlugin(name string, gpus *GPUs, member *coordination.Member, log *slog.Logger) *Plugin {
	return &Plugin{name: name, gpus: gpus, member: member, log: log.With("resource", name)}
}

// Name returns the resource name.
func (p *Plugin) Name() string { return p.name }

// Watch publishes the devices to the coordinator and the kubelet, at the start and on every change.
func (p *Plugin) Watch(ctx context.Context, publish func([]deviceplugin.Device)) error {
	for {
		devices, links, changed := p.gpus.latest(p.name)
		present := make([]device.Device, 0, len(devices))
		for _, d := range devices {
			if !d.Gone { // the list keeps the device as long as the kubelet needs it
				present = append(present, d.Announced())
			}
		}
		all, again := p.member.List(present)
		list := make([]deviceplugin.Device, 0, len(all))
		for _, d := range all {
			list = append(list, deviceplugin.Device{ID: d.ID, Healthy: d.Healthy, Nodes: d.NUMA.Numbers()})
		}
		p.member.Publish(device.Announcement{Devices: all, Links: links})
		p.member.AwaitTaken(ctx)
		publish(list)
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// Prefer returns the coordinator's choice.
func (p *Plugin) Prefer(ctx context.Context, available, mustInclude []string, size int) []string {
	return p.member.Prefer(ctx, available, mustInclude, size)
}

// Alone chooses without the coordinator.
func (p *Plugin) Alone(available, mustInclude []string, size int) []string {
	return p.member.Alone(available, mustInclude, size)
}

// Allocate returns the edits in the order in which the i-th GPU pairs with the i-th VF. It refuses only
// requests that the backend or the coordinator refuses: a device that is gone gets its last edits, and
// unknown IDs are ignored as in AMD's own plugin, unless the backend refuses them as NVIDIA's does.
func (p *Plugin) Allocate(ctx context.Context, ids []string) (container.Edits, error) {
	failed := true // also by a panic
	defer func() { p.member.Returned(ids, failed) }()
	devices, unknown := p.find(ids)
	if err := p.gpus.Refuse(p.name, devices, unknown); err != nil {
		return container.Edits{}, err
	}
	ordered, to, err := p.member.Allocated(ctx, ids)
	if err != nil {
		return container.Edits{}, err
	}
	devices, unknown = p.find(ordered)
	if len(unknown) > 0 {
		p.log.Warn("allocated", "devices", ordered, "unknown", unknown, to)
	} else {
		p.log.Info("allocated", "devices", ordered, to)
	}
	edits := p.gpus.Edits(devices)
	failed = false
	return edits, nil
}

// find looks the devices up, in the order of their IDs.
func (p *Plugin) find(ids []string) (devices []Device, unknown []string) {
	known, _, _ := p.gpus.latest(p.name)
	devices = make([]Device, 0, len(ids))
	for _, id := range ids {
		if i := slices.IndexFunc(known, func(d Device) bool { return d.ID == id }); i >= 0 {
			devices = append(devices, known[i])
		} else {
			unknown = append(unknown, id)
		}
	}
	return devices, unknown
}
