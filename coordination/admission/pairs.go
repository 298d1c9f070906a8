// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// serve pairs all GPUs of the node with the VFs of a container: its own or most likely GPUs by placement, and
// each further GPU with the nearest VF, so that any GPU of the container has a VF. The VFs of an unannounced
// resource are unknown, and serve returns nil.
func serve(b *books, name string, ids []string, gpus placement.Half) []pairs.Served {
	vfs := device.All(b.resources[name].Select(ids))
	if len(vfs.Held) == 0 {
		return nil
	}
	best := map[topology.Address]string{}
	used := map[string]int{}
	request := placement.Request{GPUs: []placement.Half{gpus}, VFs: []placement.Half{vfs}}
	if choice, err := placement.Choose(b.tree, request); err == nil {
		for _, p := range choice.Pairs {
			if best[p.GPU.Address] == "" {
				best[p.GPU.Address] = p.VF.ID
				used[p.VF.ID]++
			}
		}
	}
	var served []pairs.Served
	for _, gpu := range b.resources.Addresses(device.GPU) {
		if best[gpu] == "" {
			nearest := slices.MinFunc(vfs.Held, func(x, y placement.Device) int {
				return cmp.Or(b.tree.Distance(gpu, x.Address).Compare(b.tree.Distance(gpu, y.Address)),
					cmp.Compare(used[x.ID], used[y.ID]), x.Address.Compare(y.Address))
			})
			best[gpu] = nearest.ID
			used[nearest.ID]++
		}
		served = append(served, pairs.Served{GPU: gpu, VF: best[gpu]})
	}
	return served
}

// gpusOf returns the GPUs of the container of just allocated VFs: allocated GPUs, planned GPUs, or the GPUs
// nearest to the VFs.
func gpusOf(s *state, name string, ids []string, now time.Time) placement.Half {
	gpus := s.resources.Held(s.open.devices, device.GPU)
	if p := s.open.live(now); p != nil && len(gpus) == 0 {
		gpus = s.resources.Held(p.devices, device.GPU)
	}
	if r := s.resources[name]; r != nil && len(gpus) == 0 {
		return gpusBeside(s.books(), r, ids, s.open.container)
	}
	return device.All(gpus)
}

// pairedDevices returns the devices of the open admission of a state, with later devices if the admission is
// still open in the current state.
func pairedDevices(s, current *state) []pairs.Device {
	if current.open != nil && slices.Equal(current.open.files, s.open.files) {
		s = current
	}
	return s.resources.Paired(s.open.devices)
}
