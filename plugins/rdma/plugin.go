// SPDX-License-Identifier: Apache-2.0

// Package rdma offers a node's SR-IOV virtual functions to the kubelet as a replacement of the SR-IOV network
// device plugin (k8snetworkplumbingwg/sriov-network-device-plugin, "the stock plugin"). Its config.json,
// resource names, device IDs, environment variables, device nodes and device-info files are identical to the
// byte, so that Multus, CNI plugins and pods need no change. Comments name the places with improved
// behaviour.
//
//	config.json, sysfs ──package pools──▶ []Pool ──▶ VFs ──▶ Plugin ◀──▶ kubelet
//	                                       events ──▲         ▲ ◀──▶ coordination.Member
//	                                                    grant.go, cdi.go, pairs.go
//
// It also replaces the RDMA shared device plugin (Mellanox/k8s-rdma-shared-dev-plugin), with that plugin's
// config.json: an HCA is offered once for each container that may share it. That plugin offers numbers, each
// of which stands for all HCAs of a pool, so that placement is impossible. Here each device is a replica of
// one HCA, "0000:0c:00.0::3": rdmaHcaMax applies to each HCA, a container gets the device nodes only of its
// HCAs (of all HCAs with tandem.allHCAs), and NCCL_IB_HCA and PCIDEVICE_<resource> list its HCAs. For the
// coordinator a replica is a VF whose PF is the HCA.
//
// AMD's network device plugin (ROCm/k8s-network-device-plugin) is a fork of the stock plugin and is replaced
// as well; health.NICHealth reads the health of NICs from the same source. One function is omitted: unless a
// resource has disableDeviceConfig, on bare metal AMD's plugin runs "nicctl clear rdma internal queue-pair"
// for every device before a container gets the device, and fails the pod if that fails
// (pkg/deviceconfig/deviceConfigClient.go). nicctl belongs to a firmware version and is not in Tandem's
// image, and the kernel destroys the queue pairs of an ended container when its processes close the uverbs
// device (ib_uverbs_close in drivers/infiniband/core/uverbs_main.c).
//
// Package pools reads the facts about devices and assigns the devices to resources. grant.go determines a
// container's access to the devices of a pool: environment and device nodes, or the names of CDI devices
// (cdi.go), a device-info file for Multus, and the description of the container's pairs (pairs.go). All of it
// is read at the time of the allocation, below the roots of a [Host]:
//
//	pools.Device ──Host.Grant──▶ Grant ──Host.Edits──▶ container.Edits ◀──Host.Pairs, Pairs.Tell
//	                               ├──cdiSpec.Write──▶ CDI spec of the pool
//	                               └──Host.WriteDevinfo──▶ device-info file
//
// The rest handles changes over time: [VFs] computes the pools at
// the start and after each change of the machine, and a [Plugin] for each resource reports them to the
// kubelet and the coordinator and answers the kubelet. A device's access is computed at the time of Allocate,
// because the kernel renumbers device nodes when a driver is bound.
//
// All facts about a device are read below the roots passed in. The facts that the stock plugin reads from
// netlink are also below /sys: the link type in net/<netdev>/type, the eswitch mode in phys_switch_id and
// phys_port_name of the PF's netdevs, the devlink parameter enable_rdma in the corresponding RDMA auxiliary
// device, vDPA devices in bus/vdpa. If the root is /sys, sriovnet reads the SR-IOV facts of a function
// (pools.SRIOVAt). Four facts are in no file and are read only if the root is /sys: [DefaultRoutes],
// [DDPProfiles], [MachineEvents] and [CheckSharing]; [LinkUp] works only there as well.
//
// Two facts must survive a restart and are in no file of the kernel: the devices reported to the kubelet,
// because a device must not vanish from the list while a container may hold it, and the properties of devices
// that container namespaces hide, because selectors still need them. See memory.go.
//
// # State: source; bound; refresh; precedence
//
//   - functions of the node's own network: default routes; PCI functions; the daemon's start; not offered.
//   - NUMA hints of each pool that leaves them to the node, in the memory file: announced GPUs or cards, VFs,
//     the kubelet's settings and checkpoint; the configured pools; every 5 s and every check, changed at most
//     once a minute; hints are withdrawn at once, and given while no container has a device of the pool.
//   - time of the last Allocate: the kubelet's calls; the configured pools; each call; for 30 s no hints are
//     given.
//   - memory file: reported devices, and attributes that containers hide; the node's functions, and gone ones
//     of containers; every check; sysfs. With unknown holders all stay.
//   - CDI spec: device nodes of the pool; its devices; every check, every 5 s and each
//     Allocate; sysfs, then memory.
package rdma

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// member is the part of *coordination.Member that a pool uses.
type member interface {
	Publish(device.Announcement)
	List([]device.Device) ([]device.Device, <-chan struct{})
	AwaitTaken(ctx context.Context)
	Prefer(ctx context.Context, q *api.PreferRequest) ([]string, error)
	Alone(q *api.PreferRequest, cause error) []string
	StartAllocate(ctx context.Context, ids []string) *coordination.Allocate
	Allocated(ctx context.Context, a *coordination.Allocate) (order []string, to slog.Attr, err error)
	Returned(ctx context.Context, a *coordination.Allocate, failed bool)
	Pair(ctx context.Context, vfs []pairs.VF, file string) (served []pairs.Served, written bool)
}

var (
	_ member                 = (*coordination.Member)(nil)
	_ deviceplugin.Resource  = (*Plugin)(nil)
	_ deviceplugin.Preferrer = (*Plugin)(nil)
)

// Plugin offers one pool to the kubelet.
type Plugin struct {
	name   string
	vfs    *VFs
	host   Host
	spec   cdiSpec
	member member
	log    *slog.Logger
	listed bool // the devices were published; belongs to Watch

	// about the CDI spec, device-info files, and those of former devices
	unwritten, unrestored, untidied system.Complaint
}

// NewPlugin returns the plugin of one pool; Watch starts it.
func NewPlugin(name string, vfs *VFs, host Host, member member, log *slog.Logger) *Plugin {
	return &Plugin{name: name, vfs: vfs, host: host, member: member, log: log.With("resource", name)}
}

// Name returns the resource name, "intel.com/mlnx_vf".
func (p *Plugin) Name() string { return p.name }

// filesPause is the interval between two checks of the CDI spec and of the device-info files, which other
// processes may remove.
const filesPause = 5 * time.Second

// Watch publishes the devices to the coordinator and the kubelet, at the start and after every change, and
// maintains their files, also after every scan of the machine. The resource is not offered before its first
// device exists, so that the node does not list it.
func (p *Plugin) Watch(ctx context.Context, publish func([]deviceplugin.Device)) error {
	ticker := time.NewTicker(filesPause)
	defer ticker.Stop()
	var looked, again, changed <-chan struct{}
	show := func() {
		looked = p.vfs.nextLook()
		again, changed = p.publishDevices(ctx, publish)
	}
	show()
	for {
		select {
		case <-changed:
			show()
		case <-again:
			show()
		case <-looked:
			looked = p.vfs.nextLook()
			p.restoreFiles(nil)
		case <-ticker.C:
			p.restoreFiles(map[string]*Grant{})
		case <-ctx.Done():
			return nil
		}
	}
}

// newestPool returns the current devices.
func (p *Plugin) newestPool() pools.Pool {
	pool, _ := p.vfs.latestPool(p.name)
	return pool
}

// publishDevices publishes the devices. The channels are closed when they are to be published again.
func (p *Plugin) publishDevices(
	ctx context.Context, publish func([]deviceplugin.Device),
) (again, changed <-chan struct{}) {
	pool, changed := p.vfs.latestPool(p.name)
	p.restoreFiles(nil)
	if len(pool.Devices) == 0 && !p.listed {
		return nil, changed
	}
	p.listed = true
	announced, again := p.member.List(presentDevices(pool))
	p.member.Publish(device.Announcement{Devices: announced, Hints: pool.Decision})
	p.member.AwaitTaken(ctx)
	publish(forKubelet(announced))
	return again, changed
}

// presentDevices returns the devices of a pool for the coordination. A device that is no longer found stays
// in the list as long as the kubelet needs it.
func presentDevices(pool pools.Pool) (announced []device.Device) {
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
func (p *Plugin) Prefer(ctx context.Context, q *api.PreferRequest) ([]string, error) {
	chosen, err := p.member.Prefer(ctx, q)
	if left := p.withoutVanished(q, chosen); left != nil {
		return p.member.Prefer(ctx, left)
	}
	return chosen, err
}

// Alone chooses without the coordinator.
func (p *Plugin) Alone(q *api.PreferRequest, cause error) []string {
	chosen := p.member.Alone(q, cause)
	if left := p.withoutVanished(q, chosen); left != nil {
		return p.member.Alone(left, cause)
	}
	return chosen
}

// withoutVanished returns a question without the devices that have vanished and that the kubelet still lists,
// if a choice contains one. It returns nil for another choice, and if too few devices would be left: Allocate
// then fails with any choice.
func (p *Plugin) withoutVanished(q *api.PreferRequest, chosen []string) (left *api.PreferRequest) {
	if len(p.findVanished(chosen, q.GetMustInclude())) == 0 {
		return nil
	}
	p.vfs.Look()
	vanished := p.findVanished(q.GetAvailable(), q.GetMustInclude())
	available := slices.DeleteFunc(slices.Clone(q.GetAvailable()), func(id string) bool { return vanished[id] })
	if len(available) < int(q.GetSize()) {
		return nil
	}
	return &api.PreferRequest{
		Resource: q.GetResource(), Available: available, MustInclude: q.GetMustInclude(), Size: q.GetSize(),
		Vanished: slices.Sorted(maps.Keys(vanished)),
	}
}

// findVanished returns the devices that no longer exist, except must-include devices.
func (p *Plugin) findVanished(ids, mustInclude []string) map[string]bool {
	asked, vanished := map[string]bool{}, map[string]bool{}
	for _, id := range ids {
		asked[id] = !slices.Contains(mustInclude, id)
	}
	for _, d := range p.newestPool().Devices {
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
	allocate := p.member.StartAllocate(ctx, ids)
	defer func() { p.member.Returned(ctx, allocate, failed) }()
	p.vfs.noteAllocate(p.name)
	pool := p.newestPool()
	beside := pool.Beside(ids)
	given, err := p.giveDevices(pool, slices.Concat(ids, beside))
	if err == nil {
		err = p.spec.Write(p.host, p.newestPool, given)
	}
	if err != nil {
		return container.Edits{}, fmt.Errorf("allocate %s: %w", p.name, err)
	}
	order, to, err := p.member.Allocated(ctx, allocate)
	if err != nil {
		return container.Edits{}, err
	}
	edits := p.host.Edits(pool, slices.Concat(order, beside), given)
	p.addPairs(ctx, pool, order, &edits)
	p.log.Info("allocated", "devices", order, to)
	failed = false
	return edits, nil
}

// giveDevices determines a container's access to the devices and writes Multus' device-info files.
func (p *Plugin) giveDevices(pool pools.Pool, ids []string) (map[string]*Grant, error) {
	given := make(map[string]*Grant, len(ids))
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

// addPairs adds the description of a container's pairs that its resource requests.
func (p *Plugin) addPairs(ctx context.Context, pool pools.Pool, order []string, edits *container.Edits) {
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

// restoreFiles writes the CDI spec and the missing device-info files. Running pods refer to them, a boot
// removes them, and the kubelet does not call Allocate for their devices again. Binding a driver renumbers
// device nodes without any other change of a device, so after every scan the access to all devices is read
// again: given is nil. A container that starts between the kernel's event and that scan, at most a second,
// gets the previous device nodes. The same applies to every container if device nodes are not passed by CDI,
// and while no plugin runs.
func (p *Plugin) restoreFiles(given map[string]*Grant) {
	if err := p.spec.Write(p.host, p.newestPool, given); p.unwritten.IsNew(err) {
		p.log.Error("CDI spec not written; containers may lack device nodes", "error", err)
	}
	const noDevinfo = "device-info files of running pods not restored; Multus may not find their devices"
	pool := p.newestPool()
	if given == nil {
		if err := p.host.TidyDevinfo(pool); p.untidied.IsNew(err) {
			p.log.Warn(noDevinfo, "error", err)
		}
	}
	if err := p.host.RestoreDevinfo(pool); p.unrestored.IsNew(err) {
		p.log.Warn(noDevinfo, "error", err)
	}
}
