// SPDX-License-Identifier: Apache-2.0

// Package gpu offers a node's GPUs to the kubelet.
//
// A vendor's discovery, and the edits for a container, are behind [Backend], implemented by packages amd,
// nvidia and sysfs. The rest is common: [GPUs] discovers devices at the start and on every pulse or event. A
// [Plugin] per resource name publishes them to the kubelet and the coordinator, requests preferences from the
// coordinator, and answers Allocate.
//
// # State: source; bound; refresh; precedence
//
//   - GPUs by resource: the backend; present GPUs, possible GPUs on unread cards, and those that disappeared
//     last; every check; the check. The memory size of a card stays while unreadable.
//   - reading: which cards the last discovery has read; present cards; every check; the check.
//   - links between GPUs: the backend; pairs of GPUs; when GPUs change, and every check while unreadable; the
//     backend.
//   - AMD's and NVIDIA's common partitioning: the time when all GPUs were equal; one value; every check with
//     equal GPUs; GPUs with other partitioning are unhealthy.
package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/spelling"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/topology"
)

// Backend is one vendor's driver, read from sysfs or from the vendor's library. Only Edits may be called
// concurrently.
type Backend interface {
	// Discover returns the current devices, including resources without devices that are to be offered. Only the
	// first call may return an error. Later calls judge each GPU by itself, so that an unreadable or
	// inconsistent GPU does not hide changes of the others.
	Discover() (Inventory, error)
	// Links returns the direct links between the cards, nil for a vendor without links.
	Links() ([]topology.Link, error)
	// Edits returns the edits for a container with these devices, in this order.
	Edits(devices []Device) container.Edits
}

// Watcher is a Backend that notifies of changes.
type Watcher interface {
	// Watch calls changed when Discover would return a different result, until ctx is done.
	Watch(ctx context.Context, changed func()) error
}

// Refuser is a Backend with the refusals of its vendor's own plugin. An error makes the kubelet fail the pod.
type Refuser interface {
	// Refuse is called before each allocation, with the devices and with those IDs that are not devices of the
	// resource.
	Refuse(resource string, devices []Device, unknown []string) error
}

// Sharer is a Backend that offers replicas of devices.
type Sharer interface {
	// Replicas returns the rule for the choice among the replicas.
	Replicas() device.Replicas
}

// NoDriver is the error of a vendor's driver, or its library, that is absent or not yet loaded completely.
type NoDriver string

func (e NoDriver) Error() string { return string(e) }

// IsNoDriver reports whether an error is due to an absent driver.
func IsNoDriver(err error) bool {
	_, ok := errors.AsType[NoDriver](err)
	return ok
}

// Inventory is the result of a discovery.
type Inventory struct {
	Resources map[string][]Device // by resource name, "amd.com/gpu"
	Notes     []string            // omitted devices and faults, with reasons; for the log
	// Partial means that the driver is absent or that a GPU is unreadable. Missing devices then count as
	// unhealthy instead of gone, except devices of the cards in Read, which were read completely.
	Partial bool
	Read    []topology.Address
}

// mayHide reports whether a card may have a device that was not found.
func (i *Inventory) mayHide(card topology.Address) bool {
	return i.Partial && !slices.Contains(i.Read, card)
}

// withoutDevices returns which cards the discovery has read.
func (i *Inventory) withoutDevices() Inventory { return Inventory{Partial: i.Partial, Read: i.Read} }

// Device is an allocatable GPU, or part of a GPU.
type Device struct {
	ID    string // the kubelet's device ID, as the vendor's own plugin makes it
	Card  topology.Address
	NUMA  topology.NUMANode
	Nodes []string // paths of its device nodes, on the host and in the container alike
	// of a part: distinguishes the part from the card's other parts as long as it exists, "3" or "7-0", only
	// digits and "-"; "" for a whole card and for the function that is a card's first part
	Part    string
	Index   string // the vendor's number, "0" or, of a part, "0:1"; empty if containers do not get one
	VRAM    uint64 // bytes of its card's memory; 0 for unknown
	Healthy bool
	// Degraded devices are chosen last among equally distant ones.
	Degraded bool
	Reason   string // for being unhealthy or degraded, for people; "" if the vendor's library has none
	Gone     bool   // found before, but no longer; set by GPUs only, see maxGone
}

// Fail makes the device unhealthy; of several reasons the first one counts.
func (d *Device) Fail(reason string) {
	d.Healthy, d.Reason = false, cmp.Or(d.Reason, reason)
}

// Unit returns what a container has by the device: the card, or the part of a card; by a replica, shared.
func (d Device) Unit() topology.Unit {
	_, replica := topology.CutReplica(d.ID)
	return topology.NewUnit(d.Card, d.Part, replica)
}

// Announced returns the device for the coordination.
func (d Device) Announced() device.Device {
	return device.Device{
		ID: d.ID, Unit: d.Unit(), Address: d.Card, NUMA: d.NUMA, Healthy: d.Healthy, VRAM: d.VRAM,
		Degraded: d.Degraded, Reason: d.Reason,
	}
}

// All returns the last known devices by resource name, ascending by ID, the links between their cards, and a
// channel that is closed when any of it changes. Callers must not modify the devices. mayHide reports whether
// a card may have further devices, because the last discovery could not read the card; the zero address
// stands for any card.
func (g *GPUs) All() (
	devices map[string][]Device, links []topology.Link, mayHide func(topology.Address) bool,
	changed <-chan struct{},
) {
	g.mu.Lock()
	defer g.mu.Unlock()
	reading := g.reading
	return maps.Clone(g.resources), slices.Clone(g.links), reading.mayHide, g.changed.Next()
}

// Refuse returns the vendor's reason against the allocation of devices of a resource, or of the unknown IDs,
// or nil.
func (g *GPUs) Refuse(resource string, devices []Device, unknown []string) error {
	if refuser, ok := g.backend.(Refuser); ok {
		return refuser.Refuse(resource, devices, unknown)
	}
	return nil
}

// Replicas returns the backend's rule for the choice among replicas, "" for none.
func (g *GPUs) Replicas() device.Replicas {
	if sharer, ok := g.backend.(Sharer); ok {
		return sharer.Replicas()
	}
	return ""
}

// Edits returns the edits for a container with these devices, in this order, of any resources.
func (g *GPUs) Edits(devices []Device) container.Edits { return g.backend.Edits(devices) }

// Each runs work for every resource name, including names that appear later, until ctx is done or a call
// fails. A name stays after the last of its devices is gone, because the kubelet must not see devices vanish.
func (g *GPUs) Each(ctx context.Context, work func(ctx context.Context, name string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	begun := map[string]bool{}
	for {
		names, changed := g.resourceNames()
		for _, name := range names {
			if !begun[name] {
				begun[name] = true
				group.Go(func() error { return work(ctx, name) })
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return group.Wait()
		}
	}
}

// Names returns the resource names found so far, sorted.
func (g *GPUs) Names() []string {
	names, _ := g.resourceNames()
	return names
}

// resourceNames returns the resource names, sorted, and a channel that is closed when names may have been
// added.
func (g *GPUs) resourceNames() ([]string, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.resources)), g.changed.Next()
}

// AMD and NVIDIA are the vendors of GPUs.
const (
	AMD    = "amd"
	NVIDIA = "nvidia"
)

// Maker is a vendor of GPUs.
type Maker struct {
	Vendor   string            // name, as in --vendor
	Title    string            // its name for people
	ID       uint16            // of its PCI functions
	Models   map[uint16]string // accelerators by PCI device ID
	Resource string            // resource name of whole GPUs
	Driver   string            // the driver of its PCI functions, and the kernel module
	Program  string            // the vendor's own device plugin, in whose place tandem-gpu can be started
	Awaits   string            // software that tandem-gpu waits for on a node with GPUs, and the remedy
	// AwaitsDriver reports whether Awaits is the driver, so that tandem-gpu does not wait while the driver has
	// GPUs.
	AwaitsDriver bool
}

// Makers lists all vendors of GPUs. CONTRIBUTING lists the other files for a new vendor.
var Makers = []Maker{
	{
		Vendor: AMD, Title: "AMD", ID: 0x1002, Models: amdModels, Resource: "amd.com/gpu",
		Driver: "amdgpu", Program: "k8s-device-plugin",
		Awaits: "the driver amdgpu", AwaitsDriver: true,
	},
	{
		Vendor: NVIDIA, Title: "NVIDIA", ID: 0x10de, Models: nvidiaModels, Resource: "nvidia.com/gpu",
		Driver: "nvidia", Program: "nvidia-device-plugin",
		Awaits: "NVML: " + NVMLRemedy,
	},
}

// Vendor returns the maker of a GPU, AMD or NVIDIA, or "" for any other function, including the display
// controllers of board management controllers.
func Vendor(d *topology.Device) string {
	for _, m := range Makers {
		if d.Class.IsGPU() && d.Vendor == m.ID {
			return m.Vendor
		}
	}
	return ""
}

// Model returns a GPU's name, or its PCI IDs, "1002:74a1", for an unknown model; "1002:unknown" without a
// product ID.
func Model(d *topology.Device) string {
	for _, m := range Makers {
		if name, ok := m.Models[d.Product]; ok && d.Vendor == m.ID {
			return name
		}
	}
	if d.Product == 0 {
		return fmt.Sprintf("%04x:unknown", d.Vendor)
	}
	return fmt.Sprintf("%04x:%04x", d.Vendor, d.Product)
}

// MakerOf returns the row of a vendor by its name; false if no row has the name.
func MakerOf(vendor string) (Maker, bool) {
	for _, m := range Makers {
		if m.Vendor == vendor {
			return m, true
		}
	}
	return Maker{}, false
}

// Names returns the vendors' names, as in --vendor.
func Names() (names []string) {
	for _, m := range Makers {
		names = append(names, m.Vendor)
	}
	return names
}

// Titles lists the vendors for people, as "AMD or NVIDIA".
func Titles() string { return listMakers(func(m Maker) string { return m.Title }) }

// Drivers lists the vendors' drivers for people, as "amdgpu or nvidia".
func Drivers() string { return listMakers(func(m Maker) string { return m.Driver }) }

func listMakers(name func(Maker) string) string {
	var names []string
	for _, m := range Makers {
		names = append(names, name(m))
	}
	return spelling.List(names)
}

// Accelerators by PCI device ID, after the PCI ID database (pci.ids of 2026-07).
var (
	amdModels = map[uint16]string{
		0x738c: "MI100",
		0x738e: "MI100",
		0x7408: "MI250X",
		0x740c: "MI250X/MI250",
		0x740f: "MI210",
		0x74a0: "MI300A",
		0x74a1: "MI300X",
		0x74a2: "MI308X",
		0x74a5: "MI325X",
		0x74a9: "MI300X HF",
		0x74b5: "MI300X VF",
		0x74b9: "MI325X VF",
		0x75a0: "MI350X",
		0x75a3: "MI355X",
	}
	nvidiaModels = map[uint16]string{
		0x1db1: "V100 SXM2 16GB",
		0x1db4: "V100 PCIe 16GB",
		0x1db5: "V100 SXM2 32GB",
		0x1db6: "V100 PCIe 32GB",
		0x1eb8: "T4",
		0x20b0: "A100 SXM4 40GB",
		0x20b1: "A100 PCIe 40GB",
		0x20b2: "A100 SXM4 80GB",
		0x20b5: "A100 PCIe 80GB",
		0x20b7: "A30 PCIe",
		0x20f1: "A100 PCIe 40GB",
		0x20f3: "A800 SXM4 80GB",
		0x20f5: "A800 PCIe 80GB",
		0x2235: "A40",
		0x2321: "H100L 94GB",
		0x2322: "H800 PCIe",
		0x2324: "H800",
		0x2329: "H20",
		0x2330: "H100 SXM5 80GB",
		0x2331: "H100 PCIe",
		0x2335: "H200 SXM 141GB",
		0x2339: "H100 SXM5 94GB",
		0x233b: "H200 NVL",
		0x2342: "GH200",
		0x26b1: "RTX 6000 Ada",
		0x26b5: "L40",
		0x27b8: "L4",
		0x2901: "B200",
		0x2941: "GB200",
		0x2bb5: "RTX PRO 6000 Server",
		0x3182: "B300 SXM6",
		0x31c2: "GB300",
	}
)
