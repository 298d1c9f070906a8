// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/topology"
)

// gpuVariable names the environment variable with the GPUs of a container.
const gpuVariable = "GPUS"

// backend is a driver of GPUs.
type backend struct{ machine *hardware }

// Discover returns the GPUs of the machine.
func (b backend) Discover() (gpu.Inventory, error) {
	found, driver := b.machine.gpus()
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
func (backend) Links() ([]topology.Link, error) { return nil, nil }

// Edits names the devices in the environment.
func (backend) Edits(devices []gpu.Device) container.Edits {
	var edits container.Edits
	ids := make([]string, 0, len(devices))
	for _, d := range devices {
		ids = append(ids, d.ID)
	}
	edits.Set(gpuVariable, strings.Join(ids, ","))
	return edits
}

// Watch notifies of changes of the machine.
func (b backend) Watch(ctx context.Context, changed func()) error {
	return b.machine.watch(ctx, changed)
}
