// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Device is a device with its resource.
type Device struct {
	device.Device
	Resource string
	Kind     device.Kind
}

// Compose returns the pairs file of a container with these GPUs and VFs, each named once. VF names come from
// the RDMA plugin.
func Compose(tree *topology.Tree, all []Device, vfs []VF) File {
	byID := map[string]Device{}
	var gpus, functions []device.Device
	for _, d := range all {
		if d.Kind == device.VF {
			functions = append(functions, d.Device)
		} else {
			gpus = append(gpus, d.Device)
		}
		byID[d.ID] = d
	}
	vf := func(id string) VF {
		if i := slices.IndexFunc(vfs, func(v VF) bool { return v.ID == id }); i >= 0 {
			return vfs[i]
		}
		return VF{ID: id, Address: byID[id].Address, Resource: byID[id].Resource}
	}
	file := New(nil)
	choice, err := placement.Choose(tree, placement.Request{
		GPUs: []placement.Half{device.All(gpus)}, VFs: []placement.Half{device.All(functions)},
	})
	if err != nil || len(choice.Pairs) == 0 { // no GPU
		for _, d := range functions {
			file.Pairs = append(file.Pairs, Pair{VF: vf(d.ID)})
		}
		return file
	}
	for _, p := range choice.Pairs {
		file.Pairs = append(file.Pairs, Pair{
			GPU:      &GPU{ID: p.GPU.ID, Address: p.GPU.Address, Resource: byID[p.GPU.ID].Resource},
			VF:       vf(p.VF.ID),
			Distance: p.Distance.Level.String(),
			Bridges:  p.Distance.Bridges,
			Switch:   commonBridge(tree, p.GPU.Address, p.VF.Address),
		})
	}
	return file
}

// commonBridge returns the lowest bridge that two functions share, excluding bridges of their own cards; nil
// if there is none.
func commonBridge(tree *topology.Tree, a, b topology.Address) *topology.Address {
	above, below := tree.SharedBridges(a), tree.SharedBridges(b)
	var common *topology.Address
	for i := range min(len(above), len(below)) {
		if above[i] != below[i] {
			break
		}
		common = &above[i]
	}
	return common
}

// named returns the tree's names of a VF; a sub-function is not in the tree, and the names of its function
// are not those of the sub-function.
func (d Device) named(tree *topology.Tree) VF {
	vf := VF{ID: d.ID, Address: d.Address, Resource: d.Resource}
	function, ok := tree.Device(d.Address)
	if !ok || topology.UnitOfID(d.ID).Name != d.Address.String() {
		return vf
	}
	if len(function.RDMA) > 0 {
		vf.RDMA = function.RDMA[0]
	}
	if len(function.Netdevs) > 0 {
		vf.Netdev = function.Netdevs[0]
	}
	return vf
}
