// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// environment is what the containers of one group get, looked up and not yet written.
type environment struct {
	edits container.Edits
	told  *pairs.File // nil where nobody wants to be told
	file  string      // where that goes
	infos []info
}

// info is what Multus is to know of a VF.
type info struct {
	pool   pools.Pool
	device pools.Device
	grant  *grants.Grant
}

// environment looks up what containers get that have these devices.
func (p *Preparer) environment(d *decision, group string, devices []Prepared) (*environment, error) {
	choice, err := d.lists(devices)
	if err != nil {
		return nil, err
	}
	e := &environment{file: p.pairsPath(group)}
	if err := p.addGPUs(d, e, choice.GPUs); err != nil {
		return nil, err
	}
	byPool := map[string][]string{}
	for _, vf := range choice.VFs {
		name := d.vfs[vf.ID].Pool
		byPool[name] = append(byPool[name], vf.ID)
	}
	var tellers []*grants.Pairs // resources that want their containers to be told of pairs
	for _, name := range slices.Sorted(maps.Keys(byPool)) {
		told, err := p.addVFs(e, name, byPool[name])
		if err != nil {
			return nil, err
		}
		if told != nil {
			tellers = append(tellers, told)
		}
	}
	return e, p.tell(d, e, tellers, choice)
}

// addGPUs adds what GPUs take, of several resources at once: what a container is told of them is one list.
func (p *Preparer) addGPUs(d *decision, e *environment, ordered []placement.Device) error {
	if len(ordered) == 0 {
		return nil
	}
	var all []gpu.Device
	byResource := map[string][]gpu.Device{}
	for _, chosen := range ordered {
		g, ok := d.gpus[chosen.ID]
		if !ok || p.GPUs == nil {
			return fmt.Errorf("find GPU %s: it is gone", chosen.ID)
		}
		all = append(all, g.Device)
		byResource[g.Resource] = append(byResource[g.Resource], g.Device)
	}
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		if err := p.GPUs.Refuse(resource, byResource[resource], nil); err != nil {
			return err
		}
	}
	e.edits.Add(p.GPUs.Edits(all))
	return nil
}

// addVFs adds the edits for the VFs of one resource. It returns what the resource tells containers of their
// pairs, nil for nothing.
func (p *Preparer) addVFs(e *environment, name string, ids []string) (*grants.Pairs, error) {
	if p.VFs == nil {
		return nil, fmt.Errorf("find resource %s: there are no VFs on this node", name)
	}
	pool, ok := p.VFs.Pool(name)
	if !ok {
		return nil, fmt.Errorf("find resource %s: the configuration does not have it any more", name)
	}
	order := make([]string, 0, len(ids))
	for _, id := range ids {
		own, ok := idIn(pool, id)
		if !ok {
			return nil, fmt.Errorf("find VF %s of %s: it is gone", id, name)
		}
		order = append(order, own)
	}
	told := p.Host.Pairs(pool, order)
	order = slices.Concat(order, pool.Beside(order))
	given := make(map[string]*grants.Grant, len(order))
	for _, id := range order {
		d, _ := pool.Device(id)
		if d.Gone(p.Host.Sys) {
			return nil, fmt.Errorf("find VF %s of %s: it is gone", id, name)
		}
		given[id] = p.Host.Grant(d, pool.Resource)
		e.infos = append(e.infos, info{pool, d, given[id]})
	}
	edits, err := p.Host.Edits(pool, order, given)
	if err != nil {
		return nil, err
	}
	e.edits.Add(edits)
	if told != nil {
		for i := range told.VFs {
			told.VFs[i].ID = ids[i]
		}
	}
	return told, nil
}

// idIn is the ID by which a pool knows a VF: of an HCA that it shares that of a replica.
func idIn(pool pools.Pool, id string) (string, bool) {
	i := slices.IndexFunc(pool.Devices, func(d pools.Device) bool {
		return d.ID == id || strings.HasPrefix(d.ID, id+replicaMark)
	})
	if i < 0 {
		return "", false
	}
	return pool.Devices[i].ID, true
}

// replicaMark is between the ID of a device and the number of a replica, which package inventory leaves out.
const replicaMark = "::"

// tell adds what containers are told of their pairs, as far as a resource wants that.
func (p *Preparer) tell(d *decision, e *environment, tellers []*grants.Pairs, choice placement.Choice) error {
	var named []pairs.VF
	for _, t := range tellers {
		named = append(named, t.VFs...)
	}
	if len(named) == 0 {
		return nil
	}
	told := pairs.Compose(d.state.Machine.Tree, d.devices(choice), named)
	for _, t := range tellers {
		if t.File != "" {
			e.told, t.File = &told, e.file
		}
		if err := t.Mount(true, &e.edits); err != nil {
			return err
		}
		t.Tell(served(told), &e.edits)
	}
	return nil
}

// devices are those of a choice with what a container is told of them.
func (d *decision) devices(choice placement.Choice) []pairs.Device {
	var all []pairs.Device
	for _, chosen := range choice.GPUs {
		all = append(all, pairs.Device{
			Device:   device.Device{ID: chosen.ID, Address: chosen.Address},
			Resource: d.gpus[chosen.ID].Resource, Kind: device.GPU,
		})
	}
	for _, chosen := range choice.VFs {
		all = append(all, pairs.Device{
			Device:   device.Device{ID: chosen.ID, Address: chosen.Address},
			Resource: d.vfs[chosen.ID].Pool, Kind: device.VF,
		})
	}
	return all
}

// served says of each GPU which VF serves it.
func served(told pairs.File) []pairs.Served {
	var list []pairs.Served
	for _, pair := range told.Pairs {
		if pair.GPU == nil {
			continue
		}
		known := func(s pairs.Served) bool { return s.GPU == pair.GPU.Address }
		if !slices.ContainsFunc(list, known) {
			list = append(list, pairs.Served{GPU: pair.GPU.Address, VF: pair.VF.ID})
		}
	}
	return list
}

// write puts in place what the CDI spec refers to, and what Multus reads.
func (p *Preparer) write(e *environment) error {
	for _, i := range e.infos {
		if err := p.Host.WriteDevinfo(i.pool, i.device, i.grant); err != nil {
			return err
		}
	}
	if e.told == nil {
		return nil
	}
	return e.told.Write(e.file)
}
