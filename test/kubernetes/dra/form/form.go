// SPDX-License-Identifier: Apache-2.0

// Package form publishes a machine in other ways than Tandem, for comparison.
package form

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/topology"
)

// Capacity is the name of the capacity of a PF, its VFs.
const Capacity = resourceapi.QualifiedName("vfs")

// label makes a DNS label of an ID.
var label = strings.NewReplacer(":", "-", ".", "-", "_", "-")

// Plain publishes each GPU and each VF as a device with its switch; the constraints of claims find pairs.
func Plain(m pool.Machine) []pool.Slice {
	devices := gpus(m)
	for _, vf := range m.VFs {
		devices = append(devices, device(m, "vf-"+label.Replace(vf.ID), pool.TypeVF, vf.Address, vf.Switch))
	}
	return cut(devices)
}

// PFs publishes each PF as one device with its VFs as a consumable capacity.
func PFs(m pool.Machine) []pool.Slice {
	devices := gpus(m)
	var pfs []topology.Address
	count := map[topology.Address]int64{}
	for _, vf := range m.VFs {
		pf := vf.PF
		if pf == (topology.Address{}) {
			pf = vf.Address
		}
		if count[pf]++; count[pf] == 1 {
			pfs = append(pfs, pf)
		}
	}
	for i, pf := range pfs {
		d := device(m, fmt.Sprintf("pf-%d", i), pool.TypeVF, pf, m.Tree.Switch(pf))
		many, one := true, resource.MustParse("1")
		d.AllowMultipleAllocations = &many
		d.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{Capacity: {
			Value: *resource.NewQuantity(count[pf], resource.DecimalSI),
			RequestPolicy: &resourceapi.CapacityRequestPolicy{
				Default: &one, ValidValues: []resource.Quantity{one},
			},
		}}
		devices = append(devices, d)
	}
	return cut(devices)
}

func gpus(m pool.Machine) []resourceapi.Device {
	var devices []resourceapi.Device
	for _, gpu := range m.GPUs {
		devices = append(devices, device(m, "gpu-"+label.Replace(gpu.ID), pool.TypeGPU, gpu.Card, gpu.Switch))
	}
	return devices
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

// cut splits devices into slices of maximum size.
func cut(devices []resourceapi.Device) []pool.Slice {
	var contents []pool.Slice
	for part := range slices.Chunk(devices, resourceapi.ResourceSliceMaxDevices) {
		contents = append(contents, pool.Slice{Devices: part})
	}
	return contents
}
