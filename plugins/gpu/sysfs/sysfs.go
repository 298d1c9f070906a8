// SPDX-License-Identifier: Apache-2.0

// Package sysfs reads GPUs without a vendor's library, for programs that examine machines without offering
// devices. A vendor has a [Reader] if its driver shows more in sysfs than PCI functions.
package sysfs

import (
	"errors"
	"io/fs"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/topology"
)

// Reader reads one vendor's GPUs below a sysfs root. All functions are required.
type Reader struct {
	Module string // of the driver, below the root; nothing to read without it
	Shared string // device node in /dev that a container needs for any of the GPUs
	// Single reads the GPUs under one resource name; Mixed under a name per partitioning.
	Single, Mixed func(sys fs.FS) (gpu.Inventory, error)
	// Links reads the direct connections between cards.
	Links func(sys fs.FS) ([]topology.Link, error)
	// VRAM returns the size of a card's memory in bytes, 0 for unknown.
	VRAM func(sys fs.FS, card topology.Address) (uint64, error)
	// Order returns the render nodes of all GPUs, "/dev/dri/renderD128", in the order of the vendor's runtime.
	Order func(sys fs.FS) ([]string, error)
}

// Loaded reports whether the driver is loaded.
func (r Reader) Loaded(sys fs.FS) bool {
	_, err := fs.Stat(sys, r.Module)
	return !errors.Is(err, fs.ErrNotExist)
}

// Readers are the readers of all vendors. NVIDIA has none: only NVML has more data on its GPUs than PCI.
var Readers = []Reader{{
	Module: "module/amdgpu", Shared: "kfd", Links: amd.ReadLinks, VRAM: amd.ReadVRAM, Order: amd.ReadOrder,
	Single: func(sys fs.FS) (gpu.Inventory, error) { return readAMD(sys, amd.Single) },
	Mixed:  func(sys fs.FS) (gpu.Inventory, error) { return readAMD(sys, amd.Mixed) },
}}

func readAMD(sys fs.FS, naming amd.Naming) (gpu.Inventory, error) {
	backend, err := amd.New(sys, naming)
	if err != nil {
		return gpu.Inventory{}, err
	}
	return backend.Discover()
}
