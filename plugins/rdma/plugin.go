// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// Member is the part of *coordination.Member that a pool uses.
type Member interface {
	Publish(device.Announcement)
	List([]device.Device) ([]device.Device, <-chan struct{})
	AwaitTaken(ctx context.Context)
	Prefer(ctx context.Context, available, mustInclude []string, size int) []string
	Alone(available, mustInclude []string, size int) []string
	Allocated(ctx context.Context, ids []string) (order []string, to slog.Attr, err error)
	Returned(ids []string, failed bool)
	Pair(ctx context.Context, vfs []pairs.VF, file string) (served []pairs.Served, written bool)
}

var (
	_ Member                 = (*coordination.Member)(nil)
	_ deviceplugin.Resource  = (*Plugin)(nil)
	_ deviceplugin.Preferrer = (*Plugin)(nil)
)

// Plugin offers one pool to the kubelet.
type Plugin struct {
	name   string
	vfs    *VFs
	host   grants.Host
	spec   grants.Spec
	member Member
	log    *slog.Logger
}

// NewPlugin returns the plugin of one pool; Watch starts it.
func NewPlugin(name string, vfs *VFs, host grants.Host, member Member, log *slog.Logger) *Plugin {
	return &Plugin{name: name, vfs: vfs, host: host, member: member, log: log.With("resource", name)}
}

// Name returns the resource name, "intel.com/mlnx_vf".
func (p *Plugin) Name() string { return p.name }

// Watch publishes the devices to the coordinator and the kubelet, at the start and after every change, and
// maintains their files. The resource is not offered before its first device exists, so that the node does
// not list it.
func (p *Plugin) Watch(ctx context.Context, publish func([]deviceplugin.Device)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { p.keepFiles(ctx); return nil })
	g.Go(func() error { p.tell(ctx, publish); return nil })
	return g.Wait()
}

// newest returns the current devices.
func (p *Plugin) newest() pools.Pool {
	pool, _ := p.vfs.latest(p.name)
	return pool
}

// tell publishes the devices until ctx is done.
func (p *Plugin) tell(ctx context.Context, publish func([]deviceplugin.Device)) {
	for {
		pool, changed := p.vfs.latest(p.name)
		var again <-chan struct{}
		if len(pool.Devices) > 0 {
			p.prepare(pool)
			var announced []device.Device
			announced, again = p.member.List(present(pool))
			p.member.Publish(device.Announcement{Devices: announced, Hints: pool.Decision})
			p.member.AwaitTaken(ctx)
			publish(forKubelet(announced))
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// present returns the devices of a pool for the coordination. A device that is no longer found stays in the
// list as long as the kubelet needs it.
func present(pool pools.Pool) (announced []device.Device) {
	for _, d := range pool.Devices {
		if !d.Missing() {
			announced = append(announced, Announced(d))
		}
	}
	return announced
}

// forKubelet returns devices for the kubelet.
func forKubelet(devices []device.Device) (list []deviceplugin.Device) {
	for _, d := range devices {
		list = append(list, deviceplugin.Device{ID: d.ID, Healthy: d.Healthy, Nodes: d.NUMA.Numbers()})
	}
	return list
}

// Announced returns a device for the coordination.
func Announced(d pools.Device) device.Device {
	return device.Device{
		ID: d.ID, Unit: d.Unit(), Address: d.Address, NUMA: d.NUMA, Healthy: d.Fault == "",
		Degraded: d.Degraded != "", Reason: cmp.Or(d.Fault, d.Degraded),
	}
}

// Prefer asks the coordinator.
func (p *Plugin) Prefer(ctx context.Context, available, mustInclude []string, size int) []string {
	return p.choosePresent(available, mustInclude, size, func(available []string) []string {
		return p.member.Prefer(ctx, available, mustInclude, size)
	})
}

// Alone chooses without the coordinator.
func (p *Plugin) Alone(available, mustInclude []string, size int) []string {
	return p.choosePresent(available, mustInclude, size, func(available []string) []string {
		return p.member.Alone(available, mustInclude, size)
	})
}

// choosePresent chooses devices. If the choice contains a device that has vanished and that the kubelet still
// lists, choosePresent chooses again without such devices, unless too few would be left: Allocate then fails
// with any choice.
func (p *Plugin) choosePresent(
	available, mustInclude []string, size int, choose func(available []string) []string,
) []string {
	chosen := choose(available)
	if len(p.vanished(chosen, mustInclude)) == 0 {
		return chosen
	}
	p.vfs.Look()
	vanished := p.vanished(available, mustInclude)
	left := slices.DeleteFunc(slices.Clone(available), func(id string) bool { return vanished[id] })
	if len(left) < size {
		return chosen
	}
	return choose(left)
}

// vanished returns the devices that no longer exist, except must-include devices.
func (p *Plugin) vanished(ids, mustInclude []string) map[string]bool {
	asked, vanished := map[string]bool{}, map[string]bool{}
	for _, id := range ids {
		asked[id] = !slices.Contains(mustInclude, id)
	}
	pool, _ := p.vfs.latest(p.name)
	for _, d := range pool.Devices {
		if asked[d.ID] && d.Fault == "" && d.Gone(p.host.Sys) {
			vanished[d.ID] = true
		}
	}
	return vanished
}

// Allocate returns a container's edits. All fallible steps come before the report to the coordinator: for the
// kubelet an error means that the devices are free.
func (p *Plugin) Allocate(ctx context.Context, ids []string) (container.Edits, error) {
	failed := true // also by a panic
	defer func() { p.member.Returned(ids, failed) }()
	p.vfs.admitting(p.name)
	pool, _ := p.vfs.latest(p.name)
	beside := pool.Beside(ids)
	given, err := p.give(pool, slices.Concat(ids, beside))
	if err == nil {
		err = p.spec.Write(p.host, p.newest, given)
	}
	if err != nil {
		return container.Edits{}, fmt.Errorf("allocate %s: %w", p.name, err)
	}
	order, to, err := p.member.Allocated(ctx, ids)
	if err != nil {
		return container.Edits{}, err
	}
	edits, err := p.host.Edits(pool, slices.Concat(order, beside), given)
	if err != nil {
		return container.Edits{}, err
	}
	p.pair(ctx, pool, order, &edits)
	p.log.Info("allocated", "devices", order, to)
	failed = false
	return edits, nil
}

// give determines a container's access to the devices and writes Multus' device-info files.
func (p *Plugin) give(pool pools.Pool, ids []string) (map[string]*grants.Grant, error) {
	given := make(map[string]*grants.Grant, len(ids))
	for _, id := range ids {
		d, ok := pool.Device(id)
		if !ok {
			return nil, fmt.Errorf("device %s is not one of this resource", id)
		}
		if d.Gone(p.host.Sys) {
			p.vfs.Look()
			return nil, fmt.Errorf("device %s is gone: the node has no such function any more", id)
		}
		given[id] = p.host.Grant(d, pool.Resource)
		if err := p.host.WriteDevinfo(pool, d, given[id]); err != nil {
			return nil, err
		}
	}
	return given, nil
}

// pair adds the description of a container's pairs that its resource requests.
func (p *Plugin) pair(ctx context.Context, pool pools.Pool, order []string, edits *container.Edits) {
	pairs := p.host.Pairs(pool, order)
	if pairs == nil {
		return
	}
	served, written := p.member.Pair(ctx, pairs.VFs, pairs.File)
	if err := pairs.Mount(written, edits); err != nil {
		p.log.Error("pairs file of a container not mounted", "error", err)
	}
	pairs.Tell(served, edits)
}
