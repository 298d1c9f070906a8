package admission

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Pair tells for every GPU of the node which of the VFs serves it, and takes charge of a pairs file. False
// means that the file is not written.
func (c *Coordinator) Pair(
	name string, ids []string, file string, vfs []pairs.VF,
) (served []pairs.Served, written bool) {
	d, err := c.commit(func(d *deciding) error {
		if !device.SameSet(d.given.devices[name], ids) {
			return nil
		}
		if file != "" {
			d.given.files, d.given.vfs = append(d.given.files, file), append(d.given.vfs, vfs...)
			d.paired = true
		}
		served = d.served(name, ids)
		return nil
	})
	if err != nil {
		return nil, false // a server that has ended tells nothing
	}
	return served, c.tell(d) && d.paired
}

// served pairs all GPUs of the node with the VFs of a container: its own GPUs, or those it will most likely
// get, as placement pairs them; any other one with the VF that is nearest, so that whichever the container
// has, a VF is named for it.
func (d *deciding) served(name string, ids []string) []pairs.Served {
	vfs := device.All(d.resources[name].Select(ids))
	best := map[topology.Address]string{}
	used := map[string]int{}
	request := placement.Request{GPUs: []placement.Half{d.gpusOf(name, ids)}, VFs: []placement.Half{vfs}}
	if choice, err := placement.Choose(d.tree, request); err == nil {
		for _, p := range choice.Pairs {
			if best[p.GPU.Address] == "" {
				best[p.GPU.Address] = p.VF.ID
				used[p.VF.ID]++
			}
		}
	}
	var served []pairs.Served
	for _, gpu := range d.resources.Addresses(device.GPU) {
		if best[gpu] == "" {
			nearest := slices.MinFunc(vfs.Held, func(a, b placement.Device) int {
				return cmp.Or(d.tree.Distance(gpu, a.Address).Compare(d.tree.Distance(gpu, b.Address)),
					cmp.Compare(used[a.ID], used[b.ID]), a.Address.Compare(b.Address))
			})
			best[gpu] = nearest.ID
			used[nearest.ID]++
		}
		served = append(served, pairs.Served{GPU: gpu, VF: best[gpu]})
	}
	return served
}

// gpusOf are the GPUs of the container that VFs were just given to: those it has, those planned for it, or
// those beside the VFs.
func (d *deciding) gpusOf(name string, ids []string) placement.Half {
	gpus := d.resources.Held(d.given.devices, device.GPU)
	if p := d.livePlan(); p != nil && len(gpus) == 0 {
		gpus = d.resources.Held(p.devices, device.GPU)
	}
	if r := d.resources[name]; r != nil && len(gpus) == 0 {
		return d.gpusBeside(r, ids, d.given.container, d.given.before)
	}
	return device.All(gpus)
}

// tidyPause is that between two looks for files of containers that have ended.
const tidyPause = 10 * time.Minute

// StayTidy tidies up from time to time until ctx is done: containers end without a word to a device plugin,
// and nothing else may happen on the node.
func (c *Coordinator) StayTidy(ctx context.Context) error {
	ticker := time.NewTicker(tidyPause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.tidy()
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *Coordinator) tidy() {
	containers, err := c.Granted()
	switch s := c.current(); {
	case errors.Is(err, fs.ErrNotExist): // no container was ever given devices
	case err != nil:
		c.Log.Warn("leave pairs files as they are", "error", err)
	default:
		c.pairs.Tidy(s.tree, containers, s.resources.Paired)
	}
}
