// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// pairAllGPUs pairs all GPUs of the node with the VFs of a container: its own or most likely GPUs by
// placement, and each further GPU with the nearest VF, so that any GPU of the container has a VF. The VFs of
// an unannounced resource are unknown, and pairAllGPUs returns nil.
func pairAllGPUs(b *books, resource string, ids []string, gpus placement.Half) []pairs.Served {
	vfs := device.All(b.resources[resource].Select(ids))
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
func gpusOf(s *state, resource string, ids []string, now time.Time) placement.Half {
	gpus := s.resources.Held(s.open.Devices, device.GPU)
	if p := s.open.live(now); p != nil && len(gpus) == 0 {
		gpus = s.resources.Held(p.Devices, device.GPU)
	}
	if r := s.resources[resource]; r != nil && len(gpus) == 0 {
		return gpusBeside(s.books(), r, ids, s.open.Container)
	}
	return device.All(gpus)
}

// pairedDevices returns the devices of a record of a state, with later devices if the admission is still open
// in the current state.
func pairedDevices(s *state, a *openAdmission, current *state) []pairs.Device {
	if current.open != nil && slices.Equal(current.open.Files, a.Files) {
		s, a = current, current.open
	}
	return pairDevices(s.resources, a.Devices)
}

// pairDevices returns devices of several resources by address, without unannounced resources.
func pairDevices(announced device.Resources, devices kubelet.Devices) (all []pairs.Device) {
	for name, ids := range devices {
		if r := announced[name]; r != nil {
			for _, d := range r.Select(ids) {
				all = append(all, pairs.Device{Device: d, Resource: name, Kind: r.Kind})
			}
		}
	}
	slices.SortFunc(all, func(a, b pairs.Device) int { return device.Compare(a.Device, b.Device) })
	return all
}

// doubtedFiles returns the record of the pairs files of a container whose VFs only seemed to be the other
// half of GPUs, after an Allocate for another container; nil if nothing is in doubt. The kubelet gives a
// container a resource once: if further GPUs follow, the VFs may be of the container of either GPUs, and the
// files name no GPU until the kubelet's checkpoint has the container.
func (a *openAdmission) doubtedFiles(g grant, set device.Resources) *openAdmission {
	guessed := g.progress == progressOpen && a.Container.Guessed && a.Container.Asker == nil
	if r := set[g.resource]; !guessed || r == nil || r.Kind != device.GPU || a.Devices[g.resource] == nil {
		return nil
	}
	doubted := a.clone()
	delete(doubted.Devices, g.resource)
	return doubted
}

// Pair returns the serving VF for each GPU of the node, and takes charge of a pairs file. Returns false if
// the file is not written, for example because it is outside the folder of pairs files. The error is
// ErrClosed.
func (c *Coordinator) Pair(
	resource string, ids []string, file string, vfs []pairs.VF,
) (served []pairs.Served, written bool, err error) {
	defer c.store.changed.Fire()
	tx, err := c.commit(func(tx *transaction) error {
		if tx.open == nil || !device.SameSet(tx.open.Devices[resource], ids) {
			return nil
		}
		if c.pairs.Has(file) && tx.open.keepFile(file, vfs) {
			tx.paired = tx.open
		}
		served = pairAllGPUs(tx.books(), resource, ids, gpusOf(tx.state, resource, ids, tx.now()))
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	return served, c.reportDecision(tx) && tx.paired != nil, nil
}

// tidyPause is the interval of checks for files of ended containers.
const tidyPause = 10 * time.Minute

// StayTidy removes pairs files of ended containers from time to time until ctx is done. No event reports the
// end of a container to a device plugin.
func (c *Coordinator) StayTidy(ctx context.Context) error {
	ticker := time.NewTicker(tidyPause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.tidyPairs()
		case <-ctx.Done():
			return nil
		}
	}
}

// tidyPairs writes lost pairs files of containers anew, and removes those of ended ones. An announcement does
// so before the plugin reports its devices to the kubelet, which after a boot then starts the containers.
func (c *Coordinator) tidyPairs() {
	recorded, err := c.Kubelet.Checkpoint() // before the containers: theirs is no older checkpoint
	var containers []kubelet.Granted
	if err == nil {
		containers, err = c.Kubelet.Granted()
	}
	if err != nil {
		c.Log.Info("pairs files of ended containers not removed", "error", err)
		return
	}
	s := c.current()
	var open []string
	if s.open != nil {
		open = s.open.Files
	}
	c.pairs.Tidy(s.tree, containers, recorded.Identity, open, func(of kubelet.Devices) []pairs.Device {
		return pairDevices(s.resources, of)
	})
}
