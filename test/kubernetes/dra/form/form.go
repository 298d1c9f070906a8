// SPDX-License-Identifier: Apache-2.0

// Package form publishes a machine in another way than Tandem, for comparison.
package form

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/topology"
)

// label makes a DNS label of an ID.
var label = strings.NewReplacer(":", "-", ".", "-", "_", "-")

// Plain publishes each GPU and each VF as a device with its switch; the constraints of claims find pairs.
func Plain(m pool.Machine) []pool.Slice {
	var devices []resourceapi.Device
	for _, gpu := range m.GPUs {
		devices = append(devices, device(m, "gpu-"+label.Replace(gpu.ID), pool.TypeGPU, gpu.Card, gpu.Switch))
	}
	for _, vf := range m.VFs {
		devices = append(devices, device(m, "vf-"+label.Replace(vf.ID), pool.TypeVF, vf.Address, vf.Switch))
	}
	var contents []pool.Slice
	for part := range slices.Chunk(devices, resourceapi.ResourceSliceMaxDevices) {
		contents = append(contents, pool.Slice{Devices: part})
	}
	return contents
}

// device returns a device with the attributes of Tandem's devices that constraints need. A device without a
// switch has none.
func device(
	m pool.Machine, name string, kind pool.Type, at topology.Address, on string,
) resourceapi.Device {
	d := resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"type": text(string(kind)),
	}}
	if len(m.Tree.SharedBridges(at)) > 0 {
		d.Attributes["pcieSwitch"] = text(on)
	}
	if function, ok := m.Tree.Device(at); ok {
		d.Attributes["resource.kubernetes.io/pcieRoot"] = text(function.RootComplex())
		if number, known := function.NUMA.Number(); known {
			node := int64(number)
			d.Attributes["resource.kubernetes.io/numaNode"] = resourceapi.DeviceAttribute{IntValue: &node}
		}
	}
	return d
}

func text(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
