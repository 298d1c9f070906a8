// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-k8s/tandem/topology"
)

// Attributes in the driver's own domain, as in the CEL expression device.attributes["tandem.dev"].pcieSwitch.
const (
	AttributeType       resourceapi.QualifiedName = "type"       // a Type
	AttributeSwitch     resourceapi.QualifiedName = "pcieSwitch" // topology.Tree.Switch
	attributeDistance   resourceapi.QualifiedName = "distance"   // of a pair: "PIX", "PXB", "C2C"
	AttributeResource   resourceapi.QualifiedName = "resource"   // the device plugin's name of the resource
	attributeVendor     resourceapi.QualifiedName = "vendor"     // "amd" or "nvidia"
	attributeModel      resourceapi.QualifiedName = "model"      // "MI300X"
	AttributeGPU        resourceapi.QualifiedName = "gpu"        // address of the GPU's card
	AttributePartition  resourceapi.QualifiedName = "partition"  // name of a partition within the card
	attributePartitions resourceapi.QualifiedName = "partitions" // number of partitions of the card
	AttributeHive       resourceapi.QualifiedName = "hive"       // lowest address of the GPUs linked with it
	attributeLink       resourceapi.QualifiedName = "link"       // the kind of these links: "XGMI" or "NVLINK"
	AttributeVF         resourceapi.QualifiedName = "vf"         // address of the VF, or name of a sub-function
	attributePF         resourceapi.QualifiedName = "pf"         // address of its PF
	attributeVFIndex    resourceapi.QualifiedName = "vfIndex"    // its index among the VFs of its PF
	attributeRDMA       resourceapi.QualifiedName = "rdmaDevice" // "mlx5_5"
	attributeVFResource resourceapi.QualifiedName = "vfResource" // resource of a pair's VF
	AttributeDegraded   resourceapi.QualifiedName = "degraded"   // the reason; absent from a good device
	CapacityMemory      resourceapi.QualifiedName = "memory"     // memory of a whole GPU, in bytes
)

// Attributes that all drivers publish in the same way (k8s.io/dynamic-resource-allocation/deviceattribute,
// which contains all three from 1.37 on).
const (
	attributePCIBusID resourceapi.QualifiedName = "resource.kubernetes.io/pciBusID"
	attributePCIeRoot resourceapi.QualifiedName = "resource.kubernetes.io/pcieRoot"
	AttributeNUMANode resourceapi.QualifiedName = "resource.kubernetes.io/numaNode"
)

// Attributes that Multus reads of every device of a claim (pkg/draclient/draclient.go of multus-cni): the
// network with this resourceName gets the ID. If a pod requests an extended resource instead of a claim, all
// its devices need both attributes, including GPUs, with the requested resource as the name.
const (
	AttributeMultusID       resourceapi.QualifiedName = "k8s.cni.cncf.io/deviceID"
	AttributeMultusResource resourceapi.QualifiedName = "k8s.cni.cncf.io/resourceName"
)

// attributes collects the published attributes of a device. Unknown values are absent.
type attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// text adds a string. It omits a string that is too long, because such a value is wrong.
func (a attributes) text(name resourceapi.QualifiedName, value string) {
	if value != "" && len(value) <= resourceapi.DeviceAttributeMaxValueLength {
		a[name] = resourceapi.DeviceAttribute{StringValue: &value}
	}
}

func (a attributes) number(name resourceapi.QualifiedName, value int) {
	n := int64(value)
	a[name] = resourceapi.DeviceAttribute{IntValue: &n}
}

// attributes returns the attributes of a device.
func (b *builder) attributes(i *item) attributes {
	a := attributes{}
	a.text(AttributeType, string(i.Type))
	var vf *VF
	if len(i.vfs) > 0 {
		vf = i.vfs[0]
	}
	switch {
	case len(i.gpus) > 0:
		gpu := i.gpus[0]
		b.addPlace(a, gpu.Card)
		b.addGPU(a, i)
		if vf != nil && i.Type != TypeBundle {
			a.text(attributeDistance, b.machine.Tree.Distance(gpu.Card, vf.Address).Level.String())
			a.text(attributeVFResource, vf.Pool)
		}
	case vf != nil:
		b.addPlace(a, vf.Address)
		a.text(AttributeResource, vf.Pool)
	}
	if bound := b.vfs[b.options.Bound[i.Name]]; bound != nil && vf != nil {
		vf = bound
	}
	if vf != nil && i.Type != TypeBundle {
		addVF(a, vf)
	}
	b.addMultus(a, i, vf)
	a.text(AttributeDegraded, label(degraded(i)))
	return a
}

// degraded returns the reason for the first degraded part of a device; "" if no part is degraded.
func degraded(i *item) string {
	for _, gpu := range i.gpus {
		if gpu.Degraded {
			return gpu.Reason
		}
	}
	for _, vf := range i.vfs {
		if vf.Degraded != "" {
			return vf.Degraded
		}
	}
	return ""
}

// addPlace adds the location of a function.
func (b *builder) addPlace(a attributes, address topology.Address) {
	a.text(attributePCIBusID, address.String())
	tree := b.machine.Tree
	place, ok := tree.Place(address)
	if !ok {
		return
	}
	function, _ := tree.Device(address)
	if pf, ok := tree.Device(function.Function()); ok {
		function = pf
	}
	a.text(attributePCIeRoot, function.RootComplex()) // not that of a DMA function: other drivers publish it too
	if node, known := place.NUMA.Number(); known {
		a.number(AttributeNUMANode, node)
	}
	// The host bridge is not a switch: devices that share only the host bridge have no common value.
	if name := tree.Switch(address); topology.IsSwitch(name) {
		a.text(AttributeSwitch, name)
	}
}

func (b *builder) addGPU(a attributes, i *item) {
	gpu := i.gpus[0]
	a.text(AttributeGPU, gpu.Card.String())
	a.text(attributeVendor, gpu.Vendor)
	a.text(attributeModel, gpu.Model)
	a.text(AttributeResource, gpu.Resource)
	a.text(AttributeHive, gpu.Hive)
	for _, link := range b.machine.Links {
		if link.A == gpu.Card || link.B == gpu.Card {
			a.text(attributeLink, string(link.Type))
			break
		}
	}
	if gpu.Whole() {
		return
	}
	a.number(attributePartitions, gpu.Parts)
	if i.Type != TypeBundle {
		a.text(AttributePartition, part(gpu))
	}
}

func addVF(a attributes, vf *VF) {
	a.text(AttributeVF, vf.ID)
	a.text(attributePF, vf.Function().String())
	a.text(attributeRDMA, vf.RDMA)
	a.number(attributeVFIndex, vf.Index)
}

// addMultus adds the attributes for Multus. For a bundle it can name only one VF.
func (b *builder) addMultus(a attributes, i *item, vf *VF) {
	name, id := "", ""
	if len(i.gpus) > 0 {
		name, id = i.gpus[0].Resource, i.gpus[0].Card.String()
	}
	if vf != nil {
		id = vf.ID
		switch {
		case i.Type == TypeVF || b.options.PairsAsVFs:
			name = i.vfs[0].Pool
		case i.Type == TypeBundle:
			name = BundleResource
		default:
			name = PairResource
		}
	}
	a.text(AttributeMultusResource, name)
	a.text(AttributeMultusID, id)
}

// capacity returns the memory of a device that has all partitions of its card.
func capacity(i *item) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	if len(i.gpus) == 0 || i.gpus[0].VRAM == 0 || i.Type != TypeBundle && !i.gpus[0].Whole() {
		return nil
	}
	bytes := resource.NewQuantity(int64(i.gpus[0].VRAM), resource.BinarySI)
	return map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{CapacityMemory: {Value: *bytes}}
}

// Taint keys. The effect is NoSchedule: a holder keeps the device.
const (
	TaintUnhealthy    = Driver + "/unhealthy"     // the value contains the part and the reason
	TaintDevicePlugin = Driver + "/device-plugin" // held through a device plugin; the value names the pod
	TaintInUse        = Driver + "/in-use"        // a claim holds it through the device in the value
)

// taints returns the reasons why a device cannot be allocated now; inUse is the device through which a claim
// holds it, "" for none.
func taints(i *item, inUse string) (taints []resourceapi.DeviceTaint) {
	unhealthy, held := "", ""
	for _, gpu := range i.gpus {
		if !gpu.Healthy && unhealthy == "" {
			unhealthy = strings.TrimSpace(gpuCounter(gpu) + " " + gpu.Reason)
		}
		if held == "" {
			held = gpu.Held
		}
	}
	for _, vf := range i.vfs {
		if vf.Fault != "" && unhealthy == "" {
			unhealthy = vfCounter(vf) + " " + vf.Fault
		}
		if held == "" {
			held = vf.Held
		}
	}
	for _, taint := range []struct{ key, value string }{
		{TaintUnhealthy, unhealthy}, {TaintDevicePlugin, held}, {TaintInUse, inUse},
	} {
		if taint.value != "" {
			taints = append(taints, resourceapi.DeviceTaint{
				Key: taint.key, Value: label(taint.value), Effect: resourceapi.DeviceTaintEffectNoSchedule,
			})
		}
	}
	return taints
}
