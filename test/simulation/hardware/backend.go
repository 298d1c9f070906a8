// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"context"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/topology"
)

// GPUVariable names the environment variable with the GPUs of a container.
const GPUVariable = "GPUS"

// Backend is a driver of GPUs.
type Backend struct{ *Machine }

// Discover returns the GPUs of the machine.
func (b Backend) Discover() (gpu.Inventory, error) {
	found, driver := b.GPUs()
	devices := make([]gpu.Device, 0, len(found))
	for _, d := range found {
		devices = append(devices, gpu.Device{
			ID: d.Address.String(), Card: d.Address, NUMA: d.NUMA, Healthy: true,
			Nodes: []string{"/dev/dri/" + d.Address.String()},
		})
	}
	return gpu.Inventory{Resources: map[string][]gpu.Device{model.GPUs: devices}, Partial: !driver}, nil
}

// Links returns no links.
func (Backend) Links() ([]topology.Link, error) { return nil, nil }

// Edits names the devices in the environment.
func (Backend) Edits(devices []gpu.Device) container.Edits {
	var edits container.Edits
	ids := make([]string, 0, len(devices))
	for _, d := range devices {
		ids = append(ids, d.ID)
	}
	edits.Set(GPUVariable, strings.Join(ids, ","))
	return edits
}

// Watch notifies of changes of the machine.
func (b Backend) Watch(ctx context.Context, changed func()) error {
	return b.Machine.Watch(ctx, changed)
}
