// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// nodeIndex finds the devices of a node and their holders.
type nodeIndex struct {
	state State
	gpus  map[string]pool.GPU // by ID
	vfs   map[string]pool.VF  // by ID
	held  map[string]string   // holder of each device, by ID: other claims, including new claims
}

func newNodeIndex(state State) *nodeIndex {
	n := &nodeIndex{
		state: state, held: map[string]string{},
		gpus: make(map[string]pool.GPU, len(state.Machine.GPUs)),
		vfs:  make(map[string]pool.VF, len(state.Machine.VFs)),
	}
	for _, g := range state.Machine.GPUs {
		n.gpus[g.ID] = g
	}
	for _, vf := range state.Machine.VFs {
		n.vfs[vf.ID] = vf
	}
	return n
}

// hold records the devices of a claim.
func (n *nodeIndex) hold(c Claim) {
	for _, p := range c.Devices {
		for _, id := range p.Holds() {
			n.held[id] = c.String()
		}
	}
}

// available reports whether a VF can be handed out.
func (n *nodeIndex) available(id string) bool {
	vf, ok := n.vfs[id]
	return ok && vf.Unusable() == "" && n.held[id] == ""
}

// nearAny reports whether a VF is on one switch with any of some GPUs.
func (n *nodeIndex) nearAny(gpus []*Prepared, vf string) bool {
	return slices.ContainsFunc(gpus, func(gpu *Prepared) bool { return n.sameSwitch(gpu.GPUs[0], vf) })
}

func (n *nodeIndex) sameSwitch(gpu, vf string) bool {
	g, known := n.gpus[gpu]
	v, too := n.vfs[vf]
	return known && too && n.state.Machine.Tree.Distance(g.Card, v.Address).Level.Direct()
}

// lists returns the devices of containers with the same devices, each once, as halves for placement: with
// admin access a claim can have a GPU alone, in a pair and in a bundle.
func (n *nodeIndex) lists(devices []Prepared) (placement.Choice, error) {
	var gpus, vfs placement.Half
	var gpuIDs, vfIDs []string
	for _, p := range devices {
		gpuIDs, vfIDs = append(gpuIDs, p.GPUs...), append(vfIDs, p.VFs...)
	}
	for _, id := range distinct(gpuIDs) {
		gpus.Held = append(gpus.Held, placement.Device{ID: id, Address: n.gpus[id].Card})
	}
	for _, id := range distinct(vfIDs) {
		vfs.Held = append(vfs.Held, placement.Device{ID: id, Address: n.vfs[id].Address})
	}
	gpus.Count, vfs.Count = len(gpus.Held), len(vfs.Held)
	choice, err := placement.Choose(n.state.Machine.Tree, placement.Request{
		GPUs: []placement.Half{gpus}, VFs: []placement.Half{vfs}, Links: n.state.Machine.Links,
	})
	if err != nil {
		return choice, fmt.Errorf("order the devices of a container: %w", err)
	}
	return choice, nil
}

// devices returns the devices of a choice, with their resources.
func (n *nodeIndex) devices(choice placement.Choice) []pairs.Device {
	var all []pairs.Device
	for _, chosen := range choice.GPUs {
		all = append(all, pairs.Device{
			Device:   device.Device{ID: chosen.ID, Address: chosen.Address},
			Resource: n.gpus[chosen.ID].Resource, Kind: device.GPU,
		})
	}
	for _, chosen := range choice.VFs {
		all = append(all, pairs.Device{
			Device:   device.Device{ID: chosen.ID, Address: chosen.Address},
			Resource: n.vfs[chosen.ID].Pool, Kind: device.VF,
		})
	}
	return all
}
