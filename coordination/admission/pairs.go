package admission

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// pairing is what the kubelet has given to the container that it is admitting. A pairs file is asked for with
// the VFs, and is complete when the GPUs are there too, whichever comes first: whoever reports the last half
// has it written before the kubelet gets its answer, and so before the container starts.
type pairing struct {
	allocation *allocation
	before     *allocation // see inPairOrder
	given      map[string][]string
	files      []string
}

// admit takes over what the kubelet gave.
func (d *deciding) admit(reached progress, a, before *allocation, name string, ids []string) {
	if !d.goesOn(reached, a, name) {
		d.pairing = pairing{given: map[string][]string{}}
	}
	d.pairing.allocation, d.pairing.before, d.pairing.given[name] = a, before, ids
	if r := d.ledger.resources[name]; r != nil && r.kind == device.GPU {
		d.pairs = &d.pairing
	}
}

// goesOn reports whether devices are given to the same container as those before: the kubelet is not done
// with it, and either the ledger holds them together or they were given without a question.
func (d *deciding) goesOn(reached progress, a *allocation, name string) bool {
	if d.pairing.given == nil || reached == complete || len(d.pairing.given[name]) > 0 {
		return false
	}
	for other, ids := range d.pairing.given {
		for _, id := range ids {
			if d.ledger.holders[other][id] != a {
				return reached == open && !d.ledger.foreseen
			}
		}
	}
	return true
}

// Pair tells for every GPU of the node which of the VFs serves it, and takes charge of a pairs file.
func (c *Coordinator) Pair(name string, ids []string, file string) (served []pairs.Served) {
	_ = c.decide(func(d *deciding) error { // a server that has ended tells nothing
		if !device.SameSet(d.pairing.given[name], ids) {
			return nil
		}
		if file != "" {
			d.pairing.files = append(d.pairing.files, file)
			d.pairs = &d.pairing
		}
		served = d.served(name, ids)
		return nil
	})
	return served
}

// ofAll lists devices of several resources by address.
func (l *ledger) ofAll(ids kubelet.Devices) []pairs.Device {
	var all []pairs.Device
	for name, list := range ids {
		r := l.resources[name]
		if r == nil {
			continue
		}
		for _, id := range list {
			all = append(all, pairs.Device{Device: r.device(id), Resource: name, Kind: r.kind})
		}
	}
	slices.SortFunc(all, func(a, b pairs.Device) int { return device.Compare(a.Device, b.Device) })
	return all
}

// served pairs all GPUs of the node with the VFs of a container: its own GPUs, or those it will most likely
// get, as placement pairs them; any other one with the VF that is nearest, so that whichever the container
// has, a VF is named for it.
func (d *deciding) served(name string, ids []string) []pairs.Served {
	vfs := device.All(d.ledger.devicesOf(name, ids))
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
	for _, gpu := range d.ledger.gpuAddresses() {
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
	l := d.ledger
	var gpus []device.Device
	for _, r := range l.ofKind(device.GPU) {
		gpus = append(gpus, l.devicesOf(r.name, d.pairing.given[r.name])...)
	}
	if p := l.livePlan(); p != nil && len(gpus) == 0 {
		for _, r := range l.ofKind(device.GPU) {
			gpus = append(gpus, l.devicesOf(r.name, p.devices[r.name])...)
		}
	}
	if r := l.resources[name]; r != nil && len(gpus) == 0 {
		return l.gpusBeside(r, ids, d.pairing.allocation, d.pairing.before)
	}
	return device.All(gpus)
}

func (l *ledger) devicesOf(name string, ids []string) []device.Device {
	r := l.resources[name]
	if r == nil {
		return nil
	}
	var devices []device.Device
	for _, id := range ids {
		devices = append(devices, r.device(id))
	}
	return devices
}

// gpuAddresses lists the cards of the node, ascending.
func (l *ledger) gpuAddresses() []topology.Address {
	var addresses []topology.Address
	for _, r := range l.ofKind(device.GPU) {
		for _, d := range r.devices {
			addresses = append(addresses, d.Address)
		}
	}
	slices.SortFunc(addresses, topology.Address.Compare)
	return slices.Compact(addresses)
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
		c.pairs.Tidy(s.tree, containers, s.ledger.ofAll)
	}
}
