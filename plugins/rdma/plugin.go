package rdma

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
)

// Member is what a pool needs of coordination: a *coordination.Member.
type Member interface {
	Publish(coordination.Announcement)
	Prefer(ctx context.Context, available, mustInclude []string, size int) []string
	Allocated(ctx context.Context, ids []string) ([]string, error)
}

var (
	_ Member                 = (*coordination.Member)(nil)
	_ deviceplugin.Resource  = (*Plugin)(nil)
	_ deviceplugin.Preferrer = (*Plugin)(nil)
)

// Plugin offers one pool to the kubelet.
type Plugin struct {
	pool    Pool
	host    Host
	member  Member
	log     *slog.Logger
	changed chan struct{} // holds a token when a device's health changed

	mu   sync.Mutex
	gone map[string]bool // IDs of devices that vanished
}

// NewPlugin makes the plugin of one pool; Watch starts it.
func NewPlugin(pool Pool, host Host, member Member, log *slog.Logger) *Plugin {
	return &Plugin{
		pool:    pool,
		host:    host,
		member:  member,
		log:     log.With("resource", pool.Name),
		changed: make(chan struct{}, 1),
		gone:    map[string]bool{},
	}
}

// Name is the resource name, "intel.com/mlnx_vf".
func (p *Plugin) Name() string { return p.pool.Name }

// Watch publishes the devices to the coordinator and the kubelet, at the start and whenever one turned out to be gone.
func (p *Plugin) Watch(ctx context.Context, publish func([]deviceplugin.Device)) error {
	for {
		announced, listed := p.list()
		p.member.Publish(coordination.Announcement{Devices: announced})
		publish(listed)
		select {
		case <-p.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *Plugin) list() (announced []coordination.Device, listed []deviceplugin.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.pool.Devices {
		healthy := !p.gone[d.ID]
		announced = append(announced, coordination.Device{ID: d.ID, Address: d.Address, NUMA: d.NUMA, Healthy: healthy})
		device := deviceplugin.Device{ID: d.ID, Healthy: healthy}
		if node, known := d.NUMA.Number(); known {
			device.Nodes = []int{node}
		}
		listed = append(listed, device)
	}
	return announced, listed
}

// Prefer leaves the choice to the coordinator, without devices that vanished: the kubelet learns of those only later.
func (p *Plugin) Prefer(ctx context.Context, available, mustInclude []string, size int) []string {
	gone := p.lookForGone()
	present := slices.DeleteFunc(slices.Clone(available), func(id string) bool {
		return gone[id] && !slices.Contains(mustInclude, id)
	})
	return p.member.Prefer(ctx, present, mustInclude, size)
}

// Allocate gives a container its devices. Everything that can fail comes before the coordinator is told that they are
// taken: an error means for the kubelet that they are not.
func (p *Plugin) Allocate(ctx context.Context, ids []string) (*v1beta1.ContainerAllocateResponse, error) {
	grants, err := p.grants(ids)
	if err != nil {
		return nil, fmt.Errorf("allocate %s: %w", p.pool.Name, err)
	}
	order, err := p.member.Allocated(ctx, ids)
	if err != nil {
		return nil, err
	}
	response, err := answer(p.pool.Name, order, grants)
	if err != nil {
		return nil, err
	}
	p.log.Info("allocate", "devices", order)
	return response, nil
}

func (p *Plugin) grants(ids []string) (map[string]*grant, error) {
	grants := make(map[string]*grant, len(ids))
	for _, id := range ids {
		i := slices.IndexFunc(p.pool.Devices, func(d Device) bool { return d.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("device %s is not one of this resource", id)
		}
		if p.host.gone(id) {
			p.lookForGone()
			return nil, fmt.Errorf("device %s is gone: the node has no such PCI function any more", id)
		}
		g := p.host.grant(p.pool.Devices[i], p.pool.resource)
		if p.pool.resource.DeviceType == NetDevice {
			if err := p.host.writeDevinfo(p.pool.Name, id, g.rdma); err != nil {
				return nil, err
			}
		}
		grants[id] = g
	}
	return grants, nil
}

// lookForGone returns the devices of the pool that are gone. Newly found ones are published as unhealthy, never left out:
// the kubelet does not survive a device that is allocated and no longer listed.
func (p *Plugin) lookForGone() map[string]bool {
	gone := map[string]bool{}
	var found []string
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.pool.Devices {
		if !p.gone[d.ID] && p.host.gone(d.ID) {
			p.gone[d.ID] = true
			found = append(found, d.ID)
		}
		gone[d.ID] = p.gone[d.ID]
	}
	if len(found) > 0 {
		p.log.Warn("devices are gone", "devices", strings.Join(found, ","))
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
	return gone
}
