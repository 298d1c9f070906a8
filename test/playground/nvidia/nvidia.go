// SPDX-License-Identifier: Apache-2.0

// Package nvidia stands in for tandem-gpu on a playground with NVIDIA GPUs: a recording has no library of the
// driver (NVML), by which tandem-gpu finds such GPUs. The stand-in is the plugin of tandem-gpu on GPUs that
// sysfs names, with the health that sysfs shows. Their UUIDs are made up, and partitions (MIG), links, memory
// and NVML's health are absent.
package nvidia

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// GPUs are the GPUs of a machine with a driver, by the numbers of their device nodes. They implement
// gpu.Backend.
type GPUs struct {
	maker   gpu.Maker
	devices []gpu.Device
}

var _ gpu.Backend = (*GPUs)(nil)

// Find returns the GPUs of a machine.
func Find(tree *topology.Tree) *GPUs {
	g := &GPUs{}
	g.maker, _ = gpu.MakerOf(gpu.NVIDIA) // the table has the vendor
	for d := range tree.Devices() {
		if gpu.Vendor(d) != gpu.NVIDIA || d.Driver != g.maker.Driver {
			continue
		}
		number := len(g.devices)
		g.devices = append(g.devices, gpu.Device{
			ID:   "GPU-" + uuid.NewSHA1(uuid.NameSpaceOID, []byte(d.Address.String())).String(),
			Card: d.Address, NUMA: d.NUMA, Healthy: true, Index: fmt.Sprint(number),
			Nodes: []string{fmt.Sprint("/dev/nvidia", number)},
		})
	}
	return g
}

// Cards returns the functions of the GPUs, by the IDs of their devices.
func (g *GPUs) Cards() map[string]topology.Address {
	cards := map[string]topology.Address{}
	for _, d := range g.devices {
		cards[d.ID] = d.Card
	}
	return cards
}

// Discover implements gpu.Backend.
func (g *GPUs) Discover() (gpu.Inventory, error) {
	return gpu.Inventory{Resources: map[string][]gpu.Device{g.maker.Resource: g.devices}}, nil
}

// Links implements gpu.Backend: they are unknown.
func (g *GPUs) Links() ([]topology.Link, error) { return nil, nil }

// sharedNodes are the device nodes that CUDA opens besides those of the GPUs.
var sharedNodes = []string{"/dev/nvidiactl", "/dev/nvidia-uvm"}

// Edits implements gpu.Backend: the variable of NVIDIA's container runtime, and the device nodes that the
// runtime adds.
func (g *GPUs) Edits(devices []gpu.Device) (edits container.Edits) {
	var ids []string
	nodes := sharedNodes
	for _, d := range devices {
		ids, nodes = append(ids, d.ID), append(nodes, d.Nodes...)
	}
	edits.Set("NVIDIA_VISIBLE_DEVICES", strings.Join(ids, ","))
	for _, path := range nodes {
		edits.AddNodes(container.Node{Path: path, Host: path})
	}
	return edits
}

// DeviceNodes returns the device nodes of the machine.
func (g *GPUs) DeviceNodes() []string {
	nodes := sharedNodes
	for _, d := range g.devices {
		nodes = append(nodes, d.Nodes...)
	}
	return nodes
}

// WriteProc writes the driver's files about the GPUs below a folder in place of /proc.
func (g *GPUs) WriteProc(proc string) error {
	for _, d := range g.devices {
		dir := filepath.Join(proc, "driver/nvidia/gpus", d.Card.String())
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("write the driver's files: %w", err)
		}
		text := fmt.Sprintf("GPU UUID: \t %s\nDevice Minor: \t %s\n", d.ID, d.Index)
		if err := os.WriteFile(filepath.Join(dir, "information"), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write the driver's files: %w", err)
		}
	}
	return nil
}
