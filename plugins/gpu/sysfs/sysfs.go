// SPDX-License-Identifier: Apache-2.0

// Package sysfs reads GPUs without a vendor's library, for programs that look at machines and offer nothing.
// A vendor has a [Reader] here if its driver shows more of GPUs in sysfs than their PCI functions.
package sysfs

import (
	"errors"
	"io/fs"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/topology"
)

// Reader reads one vendor's GPUs below a sysfs root.
type Reader struct {
	Module string // of the driver, below the root; without it there is nothing to read
	Shared string // device node in /dev that a container needs for any of the GPUs
	Absent error  // is what Single and Mixed fail with where the driver is not loaded
	// Single reads the GPUs under one resource name; Mixed under a name for each way to partition them.
	Single, Mixed func(sys fs.FS) (gpu.Inventory, error)
	// Links reads the direct connections between cards.
	Links func(sys fs.FS) ([]topology.Link, error)
	// VRAM reads the bytes of a card's memory; 0 where they are not known.
	VRAM func(sys fs.FS, card topology.Address) (uint64, error)
}

// Loaded reports whether the driver is there.
func (r Reader) Loaded(sys fs.FS) bool {
	_, err := fs.Stat(sys, r.Module)
	return !errors.Is(err, fs.ErrNotExist)
}

// Readers are those of all vendors. NVIDIA has none: its GPUs tell NVML alone more than PCI does.
var Readers = []Reader{{
	Module: "module/amdgpu", Shared: "kfd", Absent: amd.ErrNoDriver, Links: amd.ReadLinks, VRAM: amd.ReadVRAM,
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
