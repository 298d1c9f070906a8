// SPDX-License-Identifier: Apache-2.0

// Package amd finds AMD GPUs in sysfs, as the kernel's amdgpu and amdkfd drivers show them.
//
// A whole GPU, and the first partition of a partitioned one, is a PCI function; its device ID is its address.
// The other partitions are platform devices, amdgpu_xcp_<n> (amdgpu_xcp.<n> on some kernels), that hang on no
// PCI device. Only the KFD topology says of which card they are: the partition has a KFD node with the same
// render minor, whose location_id is the card's bus, device and, in the low three bits, the number of the
// partition.
//
// Two other sources are heeded where they are there: AMD's metrics exporter (package exporter) for health,
// and libamd_smi (package smi) for memory errors, and to be compared with sysfs at the start. Sysfs is enough
// and counts.
//
// Device IDs, resource names and the answer to the kubelet are those of AMD's own plugin, so that a node can
// change from one to the other under running pods.
package amd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// Naming says which resource name a device goes under.
type Naming string

// The two ways, as the flag -resource_naming_strategy of AMD's own plugin spells them.
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
	naming Naming
	health map[string]Health // other sources of health, by what they are called
	asked  bool              // them, once at least
	notes  []string          // on the library, for the next Discover
	links  []topology.Link   // that the library alone knows
	found  bool              // GPUs, once at least
	kind   string            // of all partitioned GPUs when they were last partitioned alike
}

// ErrNoDriver says that the amdgpu driver is not there, or not done with looking for its GPUs.
var ErrNoDriver = errors.New("the amdgpu driver is not loaded")

var _ gpu.Backend = (*Backend)(nil)

// New makes a Backend that reads sys, os.DirFS("/sys") on a live node.
func New(sys fs.FS, naming Naming) (*Backend, error) {
	if naming != Single && naming != Mixed {
		return nil, fmt.Errorf("--resource_naming_strategy %q: want %s or %s", naming, Single, Mixed)
	}
	return &Backend{sys: sys, naming: naming, health: map[string]Health{}}, nil
}

// Heed has every later Discover ask a source of health too. It is called name in the log.
func (b *Backend) Heed(name string, source Health) { b.health[name] = source }

// Discover reads every GPU and partition. The first one fails where a file is there and cannot be read, where
// partitions of different kinds are to go under one name, and, with ErrNoDriver, where amdgpu is not loaded.
// Later ones do not: what cannot be read is missing, GPUs that are no longer partitioned as the others are
// unhealthy, and there is no driver while it is not loaded.
func (b *Backend) Discover() (gpu.Inventory, error) {
	if !loaded(b.sys) {
		if b.found {
			return gpu.Inventory{
				Partial: true,
				Notes:   []string{"the amdgpu driver is no longer loaded: all GPUs are unhealthy until it is"},
			}, nil
		}
		return gpu.Inventory{}, fmt.Errorf("find AMD GPUs: %w (no %s): load it, or keep tandem-gpu off this node",
			ErrNoDriver, module)
	}
	nodes, notes, ofNodes := readNodes(b.sys)
	cards, ofCards := readCards(b.sys)
	partitions, leftOut, ofPartitions := readPartitions(b.sys, cards, nodes)
	parts := append(slices.Collect(maps.Values(cards)), partitions...)
	kind, mixture := b.alike(parts)
	unread := errors.Join(ofNodes, ofCards, ofPartitions)
	if err := cmp.Or(unread, mixture); err != nil && !b.found {
		return gpu.Inventory{}, err
	}
	b.found, b.kind = true, cmp.Or(kind, b.kind)
	inventory := gpu.Inventory{
		Resources: b.resources(parts), Notes: slices.Concat(b.notes, notes, leftOut), Partial: unread != nil,
	}
	b.notes = nil
	if ofCards != nil && ofNodes == nil && ofPartitions == nil { // else there may be more of every card
		inventory.Read = slices.SortedFunc(maps.Keys(cards), topology.Address.Compare)
	}
	if unread != nil {
		inventory.Notes = append(inventory.Notes, fmt.Sprintf("what cannot be read is unhealthy: %v", unread))
	}
	if mixture != nil {
		inventory.Notes = append(inventory.Notes,
			fmt.Sprintf("GPUs that are not %s are unhealthy: %v", b.kind, mixture))
	}
	inventory.Notes = append(inventory.Notes, b.judge(inventory.Resources, nodes)...)
	if mixture != nil {
		b.setApart(inventory.Resources[whole], parts)
	}
	return inventory, nil
}

// alike is how all GPUs that can be partitioned are, "" where there is none or they differ. In that case it
// says why they cannot be offered under one name.
func (b *Backend) alike(parts []part) (kind string, mixture error) {
	examples := map[string]string{} // of every kind one device
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

// setApart makes the devices of GPUs unhealthy that are partitioned otherwise than all were when last
// alike: a container that asks for one must get what the resource has been.
func (b *Backend) setApart(devices []gpu.Device, parts []part) {
	for i := range devices {
		if slices.ContainsFunc(parts, func(p part) bool {
			return p.ID == devices[i].ID && p.kind != "" && p.kind != b.kind
		}) {
			devices[i].Healthy = false
		}
	}
}

// resources sorts the parts under their names.
func (b *Backend) resources(parts []part) map[string][]gpu.Device {
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

// Edits gives the container /dev/kfd and the card and render node of every device, and nothing else: no
// environment variable, since AMD's container runtime would act on AMD_VISIBLE_DEVICES a second time.
func (b *Backend) Edits(devices []gpu.Device) (edits container.Edits) {
	paths := []string{"/dev/kfd"}
	for _, d := range devices {
		paths = append(paths, d.Nodes...)
	}
	for _, path := range paths {
		edits.AddNodes(container.Node{Path: path, Host: path})
	}
	return edits
}
