// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/topology"
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
		devices, links, changed := p.gpus.latestDevices(p.name)
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
		p.member.Publish(device.Announcement{Devices: all, Links: links, Replicas: p.gpus.Replicas()})
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
func (p *Plugin) Prefer(ctx context.Context, q *api.PreferRequest) ([]string, error) {
	return p.member.Prefer(ctx, q)
}

// Alone chooses without the coordinator.
func (p *Plugin) Alone(q *api.PreferRequest, cause error) []string { return p.member.Alone(q, cause) }

// Allocate returns the edits in the order in which the i-th GPU pairs with the i-th VF. It refuses only
// requests that the backend or the coordinator refuses: a device that is gone gets its last edits, and
// unknown IDs are ignored as in AMD's own plugin, unless the backend refuses them as NVIDIA's does.
func (p *Plugin) Allocate(ctx context.Context, ids []string) (container.Edits, error) {
	failed := true // also by a panic
	allocate := p.member.StartAllocate(ctx, ids)
	defer func() { p.member.Returned(ctx, allocate, failed) }()
	devices, unknown := p.findDevices(ids)
	if err := p.gpus.Refuse(p.name, devices, unknown); err != nil {
		return container.Edits{}, err
	}
	ordered, to, err := p.member.Allocated(ctx, allocate)
	if err != nil {
		return container.Edits{}, err
	}
	devices, unknown = p.findDevices(ordered)
	if len(unknown) > 0 {
		p.log.Warn("allocated", "devices", ordered, "unknown", unknown, to)
	} else {
		p.log.Info("allocated", "devices", ordered, to)
	}
	edits := p.gpus.Edits(devices)
	failed = false
	return edits, nil
}

// findDevices looks the devices up, in the order of their IDs.
func (p *Plugin) findDevices(ids []string) (devices []Device, unknown []string) {
	known, _, _ := p.gpus.latestDevices(p.name)
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

// NVMLRemedy explains how NVIDIA's library reaches the plugin, for people.
const NVMLRemedy = "install NVIDIA's driver, or let the pod of the plugin see it: make nvidia the pod's " +
	"container runtime (Helm: gpu.runtimeClassName), or mount the driver's root at --driver-root-ctr-path " +
	"(Helm: gpu.driverRoot, and gpu.deviceListStrategy=cdi-cri for containers without NVIDIA's runtime)"

// driverRemedy is NVMLRemedy for the DRA driver, which passes GPUs to containers through CDI.
const driverRemedy = "install NVIDIA's driver, or mount the driver's root into the pod of tandem-dra (Helm: " +
	"gpu.driverRoot=/, or /run/nvidia/driver if the GPU operator installs the driver)"

// passthrough is the driver of devices assigned to virtual machines.
const passthrough = "vfio-pci"

// Awaited are the GPUs with a driver that a plugin waits for: the GPUs of a vendor on PCI, except GPUs bound
// to vfio-pci. On a node without such GPUs the plugin waits for no driver.
type Awaited struct {
	Vendor string // AMD or NVIDIA; "" for none
	Cards  []*topology.Device
}

// AwaitedIn returns the awaited GPUs of a tree. An empty vendor stands for the vendor with more GPUs.
func AwaitedIn(tree *topology.Tree, vendor string) Awaited {
	cards := map[string][]*topology.Device{}
	for d := range tree.Devices() {
		if v := Vendor(d); v != "" && (vendor == "" || v == vendor) && d.Driver != passthrough {
			cards[v] = append(cards[v], d)
		}
	}
	most := Awaited{}
	for _, m := range Makers {
		if len(cards[m.Vendor]) > len(most.Cards) {
			most = Awaited{m.Vendor, cards[m.Vendor]}
		}
	}
	return most
}

// OtherVendor returns an error if a tree has GPUs, and none of them is of the vendor in --vendor. An empty
// vendor stands for any.
func OtherVendor(tree *topology.Tree, vendor string) error {
	wanted, named := MakerOf(vendor)
	present, found := MakerOf(AwaitedIn(tree, "").Vendor)
	if !named || !found || len(AwaitedIn(tree, vendor).Cards) > 0 {
		return nil
	}
	return fmt.Errorf("gpu.vendor (--vendor) is %s, and the GPUs of this node are %s's: set gpu.vendor=%s "+
		"or auto", wanted.Vendor, present.Title, present.Vendor)
}

// Unpublished begins a note of the DRA driver about GPUs that are not published.
const Unpublished = "no GPU is published"

// DescribeUnpublished returns a note about the GPUs of a tree that a DRA driver with --vendor cannot publish,
// for a reason; "" without such GPUs.
func DescribeUnpublished(tree *topology.Tree, vendor string, reason error) string {
	if other := OtherVendor(tree, vendor); other != nil {
		return fmt.Sprintf("%s: %v", Unpublished, other)
	}
	if _, named := MakerOf(vendor); !named {
		vendor = ""
	}
	awaited := AwaitedIn(tree, vendor)
	if len(awaited.Cards) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: %s: %s", Unpublished, awaited,
		strings.Replace(reason.Error(), NVMLRemedy, driverRemedy, 1))
}

// String returns text such as "8 GPUs of NVIDIA's on PCI (the first 0000:0f:00.0, driver nvidia)".
func (a Awaited) String() string {
	if len(a.Cards) == 0 {
		return "no GPU on PCI"
	}
	plural, first := "s", "the first "
	if len(a.Cards) == 1 {
		plural, first = "", ""
	}
	driver := a.Cards[0].Driver
	if driver == "" {
		driver = "none"
	}
	maker, _ := MakerOf(a.Vendor)
	return fmt.Sprintf("%d GPU%s of %s's on PCI (%s%s, driver %s)", len(a.Cards), plural, maker.Title, first,
		a.Cards[0].Address, driver)
}

// Loading reports whether a kernel module is being loaded, and may not have bound all devices yet
// (show_initstate in kernel/module/sysfs.c). Returns false for absent and built-in modules.
func Loading(sys fs.FS, module string) bool {
	state, err := fs.ReadFile(sys, "module/"+module+"/initstate")
	return err == nil && strings.TrimSpace(string(state)) == "coming"
}
