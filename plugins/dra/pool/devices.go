// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-k8s/tandem/topology"
)

// addSharing adds the GPUs and pairs on a cluster with shared counters. Cards without a near VF come first:
// the scheduler allocates them first for GPU-only claims.
func (b *builder) addSharing() {
	chosen := b.choosePairs()
	for _, isNear := range []bool{false, true} {
		for _, g := range b.groups {
			switch {
			case len(g.vfs) > 0 != isNear:
			case isNear && !g.isStrict():
				b.addUnit(lenientUnit(g, chosen[g], b.machine.Links)...)
			default:
				for _, card := range groupByCard(g.gpus) {
					b.addUnit(strictUnit(g, card)...)
				}
			}
		}
	}
}

// strictUnit returns the devices of a card whose GPUs share no VFs.
func strictUnit(g *group, card []*GPU) (unit []item) {
	var with, without []*GPU
	var vfs []*VF
	for _, gpu := range card {
		vf := g.partner[gpu]
		if vf == nil {
			without = append(without, gpu)
			unit = append(unit, gpuAlone(gpu, rankGPU))
			continue
		}
		with, vfs = append(with, gpu), append(vfs, vf)
		unit = append(unit, reservedPair(gpu, vf), gpuAlone(gpu, rankPairedGPU))
	}
	if isPartitioned(card) {
		unit = append(unit, bundleOf(slices.Concat(with, without)...).withVFs(vfs...))
	}
	return unit
}

// addSingle adds the GPUs on a cluster without shared counters: each GPU is in one device, with a VF of its
// own if possible. A GPU is published alone while a claim holds it alone, or another claim holds its VF.
func (b *builder) addSingle() {
	var paired, others [][]item
	bound := b.boundVFs()
	for _, g := range b.groups {
		b.spreadVFs(g, bound)
		first := firstOfEach(g, bound)
		for _, gpu := range g.gpus {
			vf := g.partner[gpu]
			if vf == nil || first[vf] != gpu {
				others = append(others, []item{gpuAlone(gpu, rankGPU)})
				continue
			}
			if b.options.InUse[gpu.ID] == gpuAlone(gpu, rankGPU).Name || b.isOfOthers(vf, bound[gpu.ID]) {
				g.reserved = append(g.reserved, vf) // for the time afterwards
				others = append(others, []item{gpuAlone(gpu, rankGPU)})
				continue
			}
			paired = append(paired, []item{gpuWithVF(gpu, vf)})
		}
	}
	b.units = append(b.units, slices.Concat(others, paired)...)
}

// spreadVFs gives the free VFs that are no GPU's partner to GPUs whose partner another GPU holds, for example
// since the cluster had counters. The other GPUs keep their partners, and so the names of their devices.
func (b *builder) spreadVFs(g *group, bound map[string]*VF) {
	partners, holders := map[*VF]bool{}, map[*VF]bool{}
	for gpu, vf := range g.partner {
		partners[vf] = true
		holders[vf] = holders[vf] || bound[gpu.ID] == vf
	}
	gpus := slices.DeleteFunc(slices.Clone(g.gpus), func(gpu *GPU) bool {
		vf := g.partner[gpu]
		return gpu.Held != "" || !holders[vf] || bound[gpu.ID] == vf
	})
	vfs := slices.DeleteFunc(slices.Clone(g.vfs), func(vf *VF) bool {
		return partners[vf] || b.unfit[vf.ID] || b.isOfOthers(vf, nil)
	})
	n := min(len(gpus), len(vfs))
	g.takePairs(g.pairNearest(gpus[:n], vfs, n, b.machine.Links))
}

// isOfOthers reports whether a claim holds a VF, and not together with the GPU with the bound VF.
func (b *builder) isOfOthers(vf, bound *VF) bool {
	return vf != bound && (b.inUse[vf.ID] || b.options.InUse[vf.ID] != "")
}

// firstOfEach returns the GPU that gets each VF that is the partner of several GPUs: the GPU that already
// holds the VF, or the first one.
func firstOfEach(g *group, bound map[string]*VF) map[*VF]*GPU {
	first := map[*VF]*GPU{}
	for _, gpu := range g.gpus {
		vf := g.partner[gpu]
		if vf != nil && (first[vf] == nil || bound[gpu.ID] == vf) {
			first[vf] = gpu
		}
	}
	return first
}

// addressName returns an address as part of a DNS label: "11-00-0", with the domain if it is not 0.
func addressName(a topology.Address) string {
	name := fmt.Sprintf("%02x-%02x-%d", a.Bus, a.Device, a.Function)
	if a.Domain != 0 {
		name = fmt.Sprintf("%04x-%s", a.Domain, name)
	}
	return name
}

// gpuName names a GPU by its card, and a partition also by its part: "11-00-0", "11-00-0-p3".
func gpuName(g *GPU) string {
	name := addressName(g.Card)
	if !g.Whole() {
		name += "-p" + partName(g)
	}
	return name
}

// Counter names of a GPU and of a VF.
func gpuCounter(g *GPU) string { return string(TypeGPU) + "-" + gpuName(g) }
func vfCounter(v *VF) string   { return string(TypeVF) + "-" + vfName(v) }

// partName returns the name of a partition within its card; the card's own function is the first partition.
func partName(g *GPU) string {
	if g.Part == "" {
		return "0"
	}
	return g.Part
}

// vfName names a VF by its address, and a sub-function also by its number: "0c-00-1", "0c-00-0-sf4".
func vfName(v *VF) string {
	name := addressName(v.Address)
	if v.Aux != "" {
		name += "-sf" + v.Aux[strings.LastIndexByte(v.Aux, '.')+1:]
	}
	return name
}

// labelValue converts a text to a label value: at most 63 letters, digits, "-", "_" and ".", with an
// alphanumeric first and last character.
func labelValue(text string) string {
	const most = 63
	var out strings.Builder
	for _, r := range text {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)
		switch {
		case out.Len() == most:
		case ok:
			out.WriteRune(r)
		case !strings.HasSuffix(out.String(), "-"):
			out.WriteByte('-')
		}
	}
	return strings.Trim(out.String(), "-_.")
}

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

// addText adds a string. It omits a string that is too long, because such a value is wrong.
func (a attributes) addText(name resourceapi.QualifiedName, value string) {
	if value != "" && len(value) <= resourceapi.DeviceAttributeMaxValueLength {
		a[name] = resourceapi.DeviceAttribute{StringValue: &value}
	}
}

func (a attributes) addNumber(name resourceapi.QualifiedName, value int) {
	n := int64(value)
	a[name] = resourceapi.DeviceAttribute{IntValue: &n}
}

// listAttributes returns the attributes of a device.
func (b *builder) listAttributes(i *item) attributes {
	a := attributes{}
	a.addText(AttributeType, string(i.Type))
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
			a.addText(attributeDistance, b.machine.Tree.Distance(gpu.Card, vf.Address).Level.String())
			a.addText(attributeVFResource, vf.Pool)
		}
	case vf != nil:
		b.addPlace(a, vf.Address)
		a.addText(AttributeResource, vf.Pool)
	}
	if bound := b.vfs[b.options.Bound[i.Name]]; bound != nil && vf != nil {
		vf = bound
	}
	if vf != nil && i.Type != TypeBundle {
		addVF(a, vf)
	}
	b.addMultus(a, i, vf)
	a.addText(AttributeDegraded, labelValue(degradedReason(i)))
	return a
}

// degradedReason returns the reason for the first degraded part of a device; "" if no part is degraded.
func degradedReason(i *item) string {
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
	a.addText(attributePCIBusID, address.String())
	tree := b.machine.Tree
	place, ok := tree.Place(address)
	if !ok {
		return
	}
	function, _ := tree.Device(address)
	if pf, ok := tree.Device(function.Function()); ok {
		function = pf
	}
	// not the root of a DMA function: other drivers publish the attribute too
	a.addText(attributePCIeRoot, function.RootComplex())
	if node, known := place.NUMA.Number(); known {
		a.addNumber(AttributeNUMANode, node)
	}
	// The host bridge is not a switch: devices that share only the host bridge have no common value.
	if name := tree.Switch(address); topology.IsSwitch(name) {
		a.addText(AttributeSwitch, name)
	}
}

func (b *builder) addGPU(a attributes, i *item) {
	gpu := i.gpus[0]
	a.addText(AttributeGPU, gpu.Card.String())
	a.addText(attributeVendor, gpu.Vendor)
	a.addText(attributeModel, gpu.Model)
	a.addText(AttributeResource, gpu.Resource)
	a.addText(AttributeHive, gpu.Hive)
	for _, link := range b.machine.Links {
		if link.A == gpu.Card || link.B == gpu.Card {
			a.addText(attributeLink, string(link.Type))
			break
		}
	}
	if gpu.Whole() {
		return
	}
	a.addNumber(attributePartitions, gpu.Parts)
	if i.Type != TypeBundle {
		a.addText(AttributePartition, partName(gpu))
	}
}

func addVF(a attributes, vf *VF) {
	a.addText(AttributeVF, vf.ID)
	a.addText(attributePF, vf.Function().String())
	a.addText(attributeRDMA, vf.RDMA)
	a.addNumber(attributeVFIndex, vf.Index)
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
	a.addText(AttributeMultusResource, name)
	a.addText(AttributeMultusID, id)
}

// memoryOf returns the memory of a device that has all partitions of its card.
func memoryOf(i *item) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
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

// listTaints returns the reasons why a device cannot be allocated now; inUse is the device through which a
// claim holds it, "" for none.
func listTaints(i *item, inUse string) (taints []resourceapi.DeviceTaint) {
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
				Key: taint.key, Value: labelValue(taint.value), Effect: resourceapi.DeviceTaintEffectNoSchedule,
			})
		}
	}
	return taints
}
