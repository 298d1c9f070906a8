package rdma

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
)

// Member is what a pool needs of coordination: a *coordination.Member.
type Member interface {
	Publish(coordination.Announcement)
	AwaitTaken(ctx context.Context)
	Prefer(ctx context.Context, available, mustInclude []string, size int) []string
	Alone(available, mustInclude []string, size int) []string
	Allocated(ctx context.Context, ids []string) ([]string, error)
	Returned(ids []string)
	Pair(ctx context.Context, ids []string, file string) []coordination.Served
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
	host   Host
	member Member
	log    *slog.Logger

	mu   sync.Mutex
	spec map[string]*grant // what the CDI spec says of devices; nil where it has to be written
}

// NewPlugin makes the plugin of one pool; Watch starts it.
func NewPlugin(name string, vfs *VFs, host Host, member Member, log *slog.Logger) *Plugin {
	return &Plugin{name: name, vfs: vfs, host: host, member: member, log: log.With("resource", name)}
}

// Name is the resource name, "intel.com/mlnx_vf".
func (p *Plugin) Name() string { return p.name }

// Watch publishes the devices to the coordinator and the kubelet, at the start and whenever they changed. As long as there
// has never been one, the resource is not offered, so that the node does not have it at all.
func (p *Plugin) Watch(ctx context.Context, publish func([]deviceplugin.Device)) error {
	for {
		pool, changed := p.vfs.latest(p.name)
		if len(pool.Devices) > 0 {
			p.prepare(pool)
			announced, listed := list(pool)
			p.member.Publish(coordination.Announcement{Devices: announced})
			p.member.AwaitTaken(ctx)
			publish(listed)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// prepare puts in place what running pods refer to and a boot took away: nobody asks for their devices again.
func (p *Plugin) prepare(pool Pool) {
	if p.host.CDI != nil {
		if err := p.writeSpec(pool, nil); err != nil {
			p.log.Error("containers may not get device nodes", "error", err)
		}
	}
	for _, d := range pool.Devices {
		if pool.resource.DeviceType != NetDevice || d.Fault != "" || p.host.hasDevinfo(p.name, d) {
			continue
		}
		if err := p.host.writeDevinfo(p.name, d, p.host.grant(d, pool.resource)); err != nil {
			p.log.Warn("Multus may not find devices of pods that run on", "error", err)
			return
		}
	}
}

// list is what there is of a pool. What is no longer found stays in the kubelet's list as long as the kubelet needs it, without a word
// from here.
func list(pool Pool) (announced []coordination.Device, listed []deviceplugin.Device) {
	for _, d := range pool.Devices {
		if d.missing() {
			continue
		}
		healthy := d.Fault == ""
		announced = append(announced, coordination.Device{ID: d.ID, Address: d.Address, NUMA: d.NUMA, Healthy: healthy})
		device := deviceplugin.Device{ID: d.ID, Healthy: healthy}
		if node, known := d.NUMA.Number(); known {
			device.Nodes = []int{node}
		}
		listed = append(listed, device)
	}
	return announced, listed
}

// Prefer leaves the choice to the coordinator.
func (p *Plugin) Prefer(ctx context.Context, available, mustInclude []string, size int) []string {
	return p.present(available, mustInclude, func(available []string) []string { return p.member.Prefer(ctx, available, mustInclude, size) })
}

// Alone chooses without the coordinator.
func (p *Plugin) Alone(available, mustInclude []string, size int) []string {
	return p.present(available, mustInclude, func(available []string) []string { return p.member.Alone(available, mustInclude, size) })
}

// present chooses devices. Where the choice has one that has vanished, of which the kubelet learns only later, it chooses again without those.
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
		if asked[d.ID] && d.Fault == "" && gone(p.host.Sys, d) {
			vanished[d.ID] = true
		}
	}
	return vanished
}

// Allocate gives a container its devices. Everything that can fail comes before the coordinator is told that they are
// taken: an error means for the kubelet that they are not.
func (p *Plugin) Allocate(ctx context.Context, ids []string) (*v1beta1.ContainerAllocateResponse, error) {
	pool, _ := p.vfs.latest(p.name)
	grants, err := p.grants(pool, ids)
	if err == nil && p.host.CDI != nil {
		err = p.writeSpec(pool, grants)
	}
	if err != nil {
		return nil, fmt.Errorf("allocate %s: %w", p.name, err)
	}
	defer p.member.Returned(ids)
	order, err := p.member.Allocated(ctx, ids)
	if err != nil {
		return nil, err
	}
	response, err := answer(p.name, order, grants)
	if err != nil {
		return nil, err
	}
	if p.host.CDI != nil {
		p.host.CDI.replace(cdiPoolOf(pool), response, order, grants)
	}
	p.pair(ctx, pool, order, response)
	p.log.Info("allocate", "devices", order)
	return response, nil
}

func (p *Plugin) grants(pool Pool, ids []string) (map[string]*grant, error) {
	grants := make(map[string]*grant, len(ids))
	for _, id := range ids {
		i := slices.IndexFunc(pool.Devices, func(d Device) bool { return d.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("device %s is not one of this resource", id)
		}
		d := pool.Devices[i]
		if gone(p.host.Sys, d) {
			p.vfs.Look()
			return nil, fmt.Errorf("device %s is gone: the node has no such function any more", id)
		}
		g := p.host.grant(d, pool.resource)
		if pool.resource.DeviceType == NetDevice {
			if err := p.host.writeDevinfo(p.name, d, g); err != nil {
				return nil, err
			}
		}
		grants[id] = g
	}
	return grants, nil
}

// writeSpec writes the pool's CDI spec: of all its devices, or anew where the grants of some differ from what it says, or where it is
// gone: another instance of the plugin removes it when it ends. What could not be written is written whole the next time.
func (p *Plugin) writeSpec(pool Pool, grants map[string]*grant) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := grants == nil || p.spec == nil
	spec := maps.Clone(p.spec)
	if changed {
		spec = p.allGrants(pool)
	}
	for id, g := range grants {
		if before := spec[id]; before == nil || !slices.EqualFunc(before.nodes, g.nodes, sameNode) {
			spec[id], changed = g, true
		}
	}
	names := cdiPoolOf(pool)
	if !changed && p.host.CDI.has(names) {
		return nil
	}
	if err := p.host.CDI.write(names, pool.Devices, spec); err != nil {
		p.spec = nil
		return err
	}
	p.spec = spec
	return nil
}

// allGrants are the grants of all devices of a pool that have no fault.
func (p *Plugin) allGrants(pool Pool) map[string]*grant {
	all := map[string]*grant{}
	for _, d := range pool.Devices {
		if d.Fault == "" {
			all[d.ID] = p.host.grant(d, pool.resource)
		}
	}
	return all
}

func sameNode(a, b *v1beta1.DeviceSpec) bool {
	return a.GetHostPath() == b.GetHostPath() && a.GetContainerPath() == b.GetContainerPath()
}
