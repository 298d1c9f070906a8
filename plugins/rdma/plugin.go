package rdma

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// Member is what a pool needs of coordination: a *coordination.Member.
type Member interface {
	Publish(device.Announcement)
	Withheld() (coordination.Holders, <-chan struct{})
	AwaitTaken(ctx context.Context)
	Prefer(ctx context.Context, available, mustInclude []string, size int) []string
	Alone(available, mustInclude []string, size int) []string
	Allocated(ctx context.Context, ids []string) (order []string, to slog.Attr, err error)
	Returned(ids []string)
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

// NewPlugin makes the plugin of one pool; Watch starts it.
func NewPlugin(name string, vfs *VFs, host grants.Host, member Member, log *slog.Logger) *Plugin {
	return &Plugin{name: name, vfs: vfs, host: host, member: member, log: log.With("resource", name)}
}

// Name is the resource name, "intel.com/mlnx_vf".
func (p *Plugin) Name() string { return p.name }

// Watch publishes the devices to the coordinator and the kubelet, at the start and whenever they changed,
// and keeps their CDI spec. As long as there has never been a device, the resource is not offered, so that
// the node does not have it at all.
func (p *Plugin) Watch(ctx context.Context, publish func([]deviceplugin.Device)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { p.keepSpec(ctx); return nil })
	g.Go(func() error { p.tell(ctx, publish); return nil })
	return g.Wait()
}

// tell publishes the devices until ctx is done.
func (p *Plugin) tell(ctx context.Context, publish func([]deviceplugin.Device)) {
	for {
		pool, changed := p.vfs.latest(p.name)
		withheld, freed := p.member.Withheld()
		if len(pool.Devices) > 0 {
			p.prepare(pool)
			announced, listed := list(pool, withheld)
			p.member.Publish(device.Announcement{Devices: announced})
			p.member.AwaitTaken(ctx)
			publish(listed)
		}
		select {
		case <-changed:
		case <-freed:
		case <-ctx.Done():
			return
		}
	}
}

// specPause is the pause between two looks at the file of the CDI spec, which anybody may remove.
const specPause = 5 * time.Second

// keepSpec keeps the CDI spec what it should be until ctx is done. Device nodes are numbered anew when a
// driver is bound, which changes nothing else of a device: so it is made anew at every look at the machine.
// A container that starts between the event of the kernel and that look, a second at the most, is given
// what was there before; so is every container where device nodes do not go through CDI, and while no
// plugin runs.
func (p *Plugin) keepSpec(ctx context.Context) {
	if p.host.CDI == nil {
		return
	}
	ticker := time.NewTicker(specPause)
	defer ticker.Stop()
	nothing := map[string]*grants.Grant{}
	complaint := ""
	for given := map[string]*grants.Grant(nil); ; {
		looked := p.vfs.nextLook()
		pool, _ := p.vfs.latest(p.name)
		err := p.spec.Write(p.host, pool, given)
		if text := fmt.Sprint(err); err != nil && text != complaint {
			p.log.Error("containers may not get device nodes", "error", err)
		}
		complaint = fmt.Sprint(err)
		select {
		case <-looked:
			given = nil
		case <-ticker.C:
			given = nothing
		case <-ctx.Done():
			return
		}
	}
}

// prepare puts in place what running pods refer to and a boot took away: nobody asks for their devices again.
func (p *Plugin) prepare(pool pools.Pool) {
	if err := p.spec.Write(p.host, pool, nil); err != nil {
		p.log.Error("containers may not get device nodes", "error", err)
	}
	if err := p.host.RestoreDevinfo(pool); err != nil {
		p.log.Warn("Multus may not find devices of pods that run on", "error", err)
	}
}

// list is what there is of a pool. What is no longer found stays in the kubelet's list as long as the kubelet
// needs it, without a word from here. What is withheld cannot be handed out now, as what is unhealthy.
func list(pool pools.Pool, withheld coordination.Holders) (
	announced []device.Device, listed []deviceplugin.Device,
) {
	for _, d := range pool.Devices {
		if d.Missing() {
			continue
		}
		healthy := d.Fault == "" && !withheld.Has(d.ID)
		announced = append(announced, device.Device{ID: d.ID, Address: d.Address, NUMA: d.NUMA, Healthy: healthy})
		listed = append(listed, deviceplugin.Device{ID: d.ID, Healthy: healthy, Nodes: d.NUMA.Numbers()})
	}
	return announced, listed
}

// Prefer leaves the choice to the coordinator.
func (p *Plugin) Prefer(ctx context.Context, available, mustInclude []string, size int) []string {
	return p.present(available, mustInclude, func(available []string) []string {
		return p.member.Prefer(ctx, available, mustInclude, size)
	})
}

// Alone chooses without the coordinator.
func (p *Plugin) Alone(available, mustInclude []string, size int) []string {
	return p.present(available, mustInclude, func(available []string) []string {
		return p.member.Alone(available, mustInclude, size)
	})
}

// present chooses devices. Where the choice has one that has vanished, of which the kubelet learns only
// later, it chooses again without those.
func (p *Plugin) present(available, mustInclude []string, choose func(available []string) []string) []string {
	chosen := choose(available)
	if len(p.vanished(chosen, mustInclude)) == 0 {
		return chosen
	}
	p.vfs.Look()
	vanished := p.vanished(available, mustInclude)
	return choose(slices.DeleteFunc(slices.Clone(available), func(id string) bool { return vanished[id] }))
}

// vanished finds those of some devices that are no longer there, beside those that a container has to have.
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

// Allocate gives a container its devices. Everything that can fail comes before the coordinator is told that
// they are taken: an error means for the kubelet that they are not.
func (p *Plugin) Allocate(ctx context.Context, ids []string) (*v1beta1.ContainerAllocateResponse, error) {
	pool, _ := p.vfs.latest(p.name)
	beside := pool.Beside(ids)
	given, err := p.give(pool, slices.Concat(ids, beside))
	if err == nil {
		err = p.spec.Write(p.host, pool, given)
	}
	if err != nil {
		return nil, fmt.Errorf("allocate %s: %w", p.name, err)
	}
	defer p.member.Returned(ids)
	order, to, err := p.member.Allocated(ctx, ids)
	if err != nil {
		return nil, err
	}
	response, err := p.host.Answer(pool, slices.Concat(order, beside), given)
	if err != nil {
		return nil, err
	}
	p.pair(ctx, pool, order, response)
	p.log.Info("allocate", "devices", order, to)
	return response, nil
}

// give looks up what a container gets with these devices, and tells Multus of them.
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

// pair tells a container of its pairs, as far as its resource wants that.
func (p *Plugin) pair(
	ctx context.Context, pool pools.Pool, order []string, response *v1beta1.ContainerAllocateResponse,
) {
	pairs := p.host.Pairs(pool, order)
	if pairs == nil {
		return
	}
	served, written := p.member.Pair(ctx, pairs.VFs, pairs.File)
	if err := pairs.Mount(written, response); err != nil {
		p.log.Error("a container is not told of pairs", "error", err)
	}
	pairs.Tell(served, response)
}
