// SPDX-License-Identifier: Apache-2.0

// Package amd finds AMD GPUs in sysfs, in the files of the kernel's amdgpu and amdkfd drivers.
//
// A whole GPU, and the first partition of a partitioned one, is a PCI function; its device ID is its address.
// The other partitions are platform devices, amdgpu_xcp_<n> (amdgpu_xcp.<n> on some kernels), without a PCI
// parent. Only the KFD topology has their card: a partition's KFD node has the same render minor, and its
// location_id is the card's bus, device and, in the low three bits, the number of the partition.
//
// Two optional sources complement sysfs: AMD's metrics exporter (health.GPUHealth) for health, and libamd_smi
// (package smi) for memory errors and for a comparison at the start. Sysfs alone suffices and takes
// precedence.
//
// Device IDs, resource names and the answers to the kubelet equal those of AMD's own plugin, so that a node
// can change from one plugin to the other under running pods.
package amd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// Naming is the strategy for resource names.
type Naming string

// The strategies, as in the flag -resource_naming_strategy of AMD's own plugin.
const (
	Single Naming = "single" // amd.com/gpu for all; partitions of different kinds are refused
	Mixed  Naming = "mixed"  // amd.com/<compute>_<memory>, "amd.com/cpx_nps4"; amd.com/gpu without partitions
)

const (
	vendor = "amd.com/"
	whole  = vendor + "gpu"
)

// Backend is the AMD GPUs below a sysfs root.
type Backend struct {
	sys    fs.FS
	dev    fs.FS // the host's device nodes; nil if not to be seen
	naming Naming
	health map[string]Health // further sources of health, by name
	asked  bool              // whether they were queried before
	notes  []string          // on the library, for the next Discover
	links  []topology.Link   // links that only the library reports
	found  bool              // GPUs, once at least
	kind   string            // the last common partitioning of all partitioned GPUs
}

// errNoDriver means that the amdgpu driver is absent, or has not yet probed all GPUs.
const errNoDriver = gpu.NoDriver("the amdgpu driver is not loaded")

var _ gpu.Backend = (*Backend)(nil)

// New returns a Backend that reads sys, os.DirFS("/sys") on a live node.
func New(sys fs.FS, naming Naming) (*Backend, error) {
	if naming != Single && naming != Mixed {
		return nil, fmt.Errorf("--resource_naming_strategy %q: want %s or %s", naming, Single, Mixed)
	}
	return &Backend{sys: sys, naming: naming, health: map[string]Health{}}, nil
}

// Read returns the GPUs for programs that examine a machine without offering devices.
func Read(sys fs.FS, naming Naming) (gpu.Inventory, error) {
	backend, err := New(sys, naming)
	if err != nil {
		return gpu.Inventory{}, err
	}
	return backend.Discover()
}

// SeeNodes makes devices without their device nodes unhealthy: see container.HostNodes.
func (b *Backend) SeeNodes(host fs.FS) { b.dev = host }

// Heed adds a source of health for later calls of Discover; name is its name in the log.
func (b *Backend) Heed(name string, source Health) { b.health[name] = source }

// Discover reads every GPU and partition. The first call returns an error if a file is unreadable, if
// partitions of different kinds would share a resource name, or, errNoDriver, if amdgpu is not loaded. Later
// calls return no error: unreadable devices are missing, GPUs with another partitioning than the others are
// unhealthy, and the inventory is partial while amdgpu is not loaded, or the KFD topology does not show all
// partitions.
func (b *Backend) Discover() (gpu.Inventory, error) {
	if !IsLoaded(b.sys) || gpu.Loading(b.sys, path.Base(module)) {
		if b.found {
			return gpu.Inventory{
				Partial: true,
				Notes:   []string{"the amdgpu driver is no longer loaded: all GPUs are unhealthy until it is"},
			}, nil
		}
		return gpu.Inventory{}, fmt.Errorf("find AMD GPUs: %w (no %s): load it, or keep tandem-gpu off this node",
			errNoDriver, module)
	}
	nodes, notes, ofNodes := readNodes(b.sys)
	cards, ofCards := readCards(b.sys)
	partitions, leftOut, ofPartitions := readPartitions(b.sys, cards, nodes)
	parts := append(slices.Collect(maps.Values(cards)), partitions...)
	kind, mixture := b.commonKind(parts)
	unread := errors.Join(ofNodes, ofCards, ofPartitions)
	if err := cmp.Or(unread, mixture); err != nil && !b.found {
		return gpu.Inventory{}, err
	}
	b.found, b.kind = true, cmp.Or(kind, b.kind)
	inventory := gpu.Inventory{
		Resources: b.sortParts(parts), Notes: slices.Concat(b.notes, notes, leftOut),
	}
	b.notes = nil
	complete := completeCards(cards, nodes)
	inventory.Partial = unread != nil || len(complete) < len(cards)
	if inventory.Partial && ofNodes == nil && ofPartitions == nil { // else any card may have further partitions
		inventory.Read = complete
	}
	if unread != nil {
		inventory.Notes = append(inventory.Notes, fmt.Sprintf("what cannot be read is unhealthy: %v", unread))
	}
	if mixture != nil {
		inventory.Notes = append(inventory.Notes,
			fmt.Sprintf("GPUs that are not %s are unhealthy: %v", b.kind, mixture))
	}
	inventory.Notes = append(inventory.Notes, b.judgeHealth(inventory.Resources, nodes)...)
	if mixture != nil {
		b.setApart(inventory.Resources[whole], parts)
	}
	return inventory, nil
}

// commonKind returns the common kind of all partitionable GPUs, or "" if there are none or if they differ. In
// the latter case mixture is the reason why one resource name cannot offer them.
func (b *Backend) commonKind(parts []part) (kind string, mixture error) {
	examples := map[string]string{} // one device of every kind
	for _, p := range parts {
		if last := examples[p.kind]; p.kind != "" && p.ID > last {
			kind, examples[p.kind] = p.kind, p.ID
		}
	}
	switch {
	case b.naming == Mixed:
		return "", nil
	case len(examples) <= 1:
		return kind, nil
	}
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(examples)) {
		kinds = append(kinds, fmt.Sprintf("%s is %s", examples[kind], kind))
	}
	return "", fmt.Errorf("name resources: GPUs are partitioned differently (%s): partition them alike, "+
		"or use --resource_naming_strategy=%s", strings.Join(kinds, ", "), Mixed)
}

// setApart marks the devices of GPUs unhealthy whose partitioning differs from the last common one: a
// container must get the kind of device that the resource has had.
func (b *Backend) setApart(devices []gpu.Device, parts []part) {
	for i := range devices {
		if slices.ContainsFunc(parts, func(p part) bool {
			return p.ID == devices[i].ID && p.kind != "" && p.kind != b.kind
		}) {
			devices[i].Fail("partitioned differently from the others")
		}
	}
}

// sortParts sorts the parts under their names.
func (b *Backend) sortParts(parts []part) map[string][]gpu.Device {
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.ID, b.ID) })
	resources := map[string][]gpu.Device{}
	for _, p := range parts {
		name := whole
		if b.naming == Mixed && p.kind != "" {
			name = vendor + p.kind
		}
		resources[name] = append(resources[name], p.Device)
	}
	if len(resources) == 0 {
		resources[whole] = nil
	}
	return resources
}

// Links reads the XGMI links between the cards.
func (b *Backend) Links() ([]topology.Link, error) {
	links, err := ReadLinks(b.sys)
	return append(links, b.links...), err
}

// Edits returns /dev/kfd and the card and render node of every device. It sets no environment variable,
// because AMD's container runtime would act on AMD_VISIBLE_DEVICES a second time.
func (b *Backend) Edits(devices []gpu.Device) (edits container.Edits) {
	paths := []string{ComputeNode}
	for _, d := range devices {
		paths = append(paths, d.Nodes...)
	}
	for _, path := range paths {
		edits.AddNodes(container.Node{Path: path, Host: path})
	}
	return edits
}

// Library is AMD's system management library, a second source besides sysfs, implemented by package smi.
type Library interface {
	Facts(ctx context.Context) (Facts, error)
}

// Facts are the library's data.
type Facts struct {
	VRAM map[topology.Address]uint64 // bytes by card; 0 for unknown
	// of the way between two cards, the lower first, as in the KFD topology
	Weights map[[2]topology.Address]uint64
}

// startPatience is how long the library may take to initialise itself and answer, once, before GPUs are
// offered.
const startPatience = 2 * time.Second

// mostXGMI is the greatest weight for which a multiple of weightXGMI means XGMI hops only.
const mostXGMI = 3 * weightXGMI

// Consult queries the library once. Sysfs takes precedence: the next Discover returns a note for each
// difference. Links that sysfs does not show are added.
func (b *Backend) Consult(name string, library Library) {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	facts, err := library.Facts(ctx)
	if err != nil {
		b.notes = append(b.notes, fmt.Sprintf("%s is of no use: %v; sysfs is read alone", name, err))
		return
	}
	differences, err := b.compareFacts(facts)
	if err != nil {
		b.notes = append(b.notes, fmt.Sprintf("not compared with %s: %v", name, err))
		return
	}
	for _, d := range differences {
		b.notes = append(b.notes, fmt.Sprintf("%s differs from sysfs, which counts: %s", name, d))
	}
}

// compareFacts returns the differences from sysfs, and keeps the additional links.
func (b *Backend) compareFacts(facts Facts) (differences []string, err error) {
	cards, err := readCards(b.sys)
	if err != nil {
		return nil, err
	}
	for address := range cards {
		vram, known := facts.VRAM[address]
		here, err := ReadVRAM(b.sys, address)
		switch {
		case err != nil:
			return nil, err
		case !known:
			differences = append(differences, fmt.Sprintf("%s is not known to it", address))
		case vram != here && vram != 0 && here != 0:
			differences = append(differences, fmt.Sprintf("%s has %d bytes of VRAM, it says %d", address, here, vram))
		}
	}
	for address := range facts.VRAM {
		if _, ok := cards[address]; !ok {
			differences = append(differences, fmt.Sprintf("%s is not driven by amdgpu, and known to it", address))
		}
	}
	links, err := ReadLinks(b.sys)
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		pair := [2]topology.Address{l.A, l.B}
		if weight, ok := facts.Weights[pair]; ok && countHops(int(weight)) != l.Hops {
			differences = append(differences,
				fmt.Sprintf("%s and %s are %d hops apart, it says weight %d", l.A, l.B, l.Hops, weight))
		}
		delete(facts.Weights, pair)
	}
	for pair, weight := range facts.Weights {
		// Few XGMI hops. A path over PCI Express has a weight of 20, the distance of its two NUMA nodes if any, and
		// 20 (kfd_crat.c).
		if weight > 0 && weight <= mostXGMI && weight%weightXGMI == 0 {
			b.links = append(b.links, topology.Link{
				A: pair[0], B: pair[1], Type: topology.XGMI, Hops: countHops(int(weight)), Count: 1,
			})
		}
	}
	slices.SortFunc(b.links, func(a, b topology.Link) int { return cmp.Or(a.A.Compare(b.A), a.B.Compare(b.B)) })
	slices.Sort(differences)
	return differences, nil
}

// ReadVRAM returns the size of a card's memory in bytes (mem_info_vram_total, amdgpu_vram_mgr.c), 0 for
// unknown.
func ReadVRAM(sys fs.FS, card topology.Address) (uint64, error) {
	text, err := read(sys, path.Join(topology.PCIDevices, card.String(), "mem_info_vram_total"))
	if err != nil || text == "" {
		return 0, err
	}
	bytes, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read mem_info_vram_total of %s: %q is no number", card, text)
	}
	return bytes, nil
}

// Time limits of each source of health. The first query delays the offer of the GPUs at the start; later ones
// delay only the next query.
const (
	firstPatience = 500 * time.Millisecond
	patience      = 5 * time.Second // as AMD's own plugin (internal/pkg/exporter/health.go)
)

// verdicts maps device IDs to their health. Absent devices are unknown.
type verdicts map[string]bool

// Health queries a source of health besides sysfs. It returns nil if the source is absent.
type Health func(ctx context.Context) (map[string]bool, error)

// judgeHealth sets the health of the devices and returns reasons for unhealthy ones. A device needs a render
// node; without any GPU in the KFD topology, no device can compute; and other sources may report faults that
// sysfs does not show. Each source can mark a device unhealthy, and none overrules another.
func (b *Backend) judgeHealth(resources map[string][]gpu.Device, nodes []node) (notes []string) {
	usable := slices.ContainsFunc(nodes, func(n node) bool { return n.gpu || n.hidden })
	if !usable {
		notes = append(notes, "no GPU in "+kfdNodes+": all GPUs are unhealthy until amdkfd has one")
	}
	sources, silent := b.askSources()
	notes = append(notes, silent...)
	for _, devices := range resources {
		for i := range devices {
			d := &devices[i]
			d.Healthy = true
			if !usable {
				d.Fail("no GPU in " + kfdNodes)
			}
			if !slices.ContainsFunc(d.Nodes, func(path string) bool { return strings.HasPrefix(path, renderNode) }) {
				d.Fail("no render node")
				notes = append(notes, d.ID+": no render node: unhealthy")
			}
			for _, path := range append([]string{ComputeNode}, d.Nodes...) {
				if container.LacksNode(b.dev, path) {
					d.Fail("no device node " + path + ": load the kernel module amdgpu")
					notes = append(notes, d.ID+": no device node "+path+": unhealthy")
				}
			}
			for _, name := range slices.Sorted(maps.Keys(sources)) {
				if !sources[name].isHealthy(d) {
					d.Fail("unhealthy, says " + name)
					notes = append(notes, fmt.Sprintf("%s: unhealthy, says %s", d.ID, name))
				}
			}
		}
	}
	slices.Sort(notes)
	return notes
}

// isHealthy returns the verdict on a device, or else on its card, because a partition depends on its card.
func (v verdicts) isHealthy(d *gpu.Device) bool {
	for _, id := range []string{d.ID, d.Card.String()} {
		if healthy, ok := v[id]; ok {
			return healthy
		}
	}
	return true
}

// askSources queries the sources of health. A source without an answer reports no fault.
func (b *Backend) askSources() (answers map[string]verdicts, notes []string) {
	limit := patience
	if !b.asked {
		b.asked, limit = true, firstPatience
	}
	answers = map[string]verdicts{}
	for name, source := range b.health {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		found, err := source(ctx)
		cancel()
		if err != nil {
			notes = append(notes, fmt.Sprintf("health of the GPUs is judged without %s: %v", name, err))
			continue
		}
		answers[name] = canonicalIDs(found)
	}
	return answers, notes
}

// canonicalIDs writes addresses as device IDs do.
func canonicalIDs(found map[string]bool) verdicts {
	v := verdicts{}
	for id, healthy := range found {
		if address, err := topology.ParseAddress(id); err == nil {
			id = address.String()
		}
		v[id] = healthy
	}
	return v
}
