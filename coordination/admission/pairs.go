package admission

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// pairing is what the kubelet has given to the container that it is admitting. A pairs file is asked for with the VFs, and is
// complete when the GPUs are there too, whichever comes first: whoever reports the last half has it written before
// the kubelet gets its answer, and so before the container starts.
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

// goesOn reports whether devices are given to the same container as those before: the kubelet is not done with it, and either
// the ledger holds them together or they were given without a question.
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

// writePairs writes what is known into the container's pairs files; they all get everything, since the kubelet mounts but
// one of them.
func (c *Coordinator) writePairs(s *state, p pairing) {
	c.writing.Lock()
	defer c.writing.Unlock()
	var vfs []pairs.VF
	for _, file := range p.files {
		before, err := pairs.Read(file)
		if err != nil {
			c.Log.Error("a container's pairs file is incomplete", "error", err)
			return
		}
		for _, p := range before.Pairs {
			vfs = append(vfs, p.VF)
		}
	}
	content := s.ledger.pairsFile(s.tree, s.ledger.ofAll(p.given), vfs)
	for _, file := range p.files {
		if err := content.Write(file); err != nil {
			c.Log.Error("a container's pairs file is incomplete", "error", err)
		}
	}
}

// given is a device with the resource it was given for.
type given struct {
	device.Device
	resource string
	kind     device.Kind
}

// ofAll lists devices of several resources by address.
func (l *ledger) ofAll(ids map[string][]string) []given {
	var all []given
	for name, list := range ids {
		r := l.resources[name]
		if r == nil {
			continue
		}
		for _, id := range list {
			all = append(all, given{r.device(id), name, r.kind})
		}
	}
	slices.SortFunc(all, func(a, b given) int { return device.Compare(a.Device, b.Device) })
	return all
}

// pairsFile is what a container is told of its devices. The VFs are named with what their plugin knows of them.
func (l *ledger) pairsFile(tree *topology.Tree, all []given, vfs []pairs.VF) pairs.File {
	byID := map[string]given{}
	var gpus, functions []device.Device
	for _, d := range all {
		if d.kind == device.VF {
			functions = append(functions, d.Device)
		} else {
			gpus = append(gpus, d.Device)
		}
		byID[d.ID] = d
	}
	vf := func(id string) pairs.VF {
		if i := slices.IndexFunc(vfs, func(v pairs.VF) bool { return v.ID == id }); i >= 0 {
			return vfs[i]
		}
		return pairs.VF{ID: id, Address: byID[id].Address, Resource: byID[id].resource}
	}
	file := pairs.New(nil)
	choice, err := placement.Choose(tree, placement.Request{GPUs: []placement.Half{allOf(gpus)}, VFs: []placement.Half{allOf(functions)}})
	if err != nil || len(choice.Pairs) == 0 { // no GPU
		for _, d := range functions {
			file.Pairs = append(file.Pairs, pairs.Pair{VF: vf(d.ID)})
		}
		return file
	}
	for _, p := range choice.Pairs {
		file.Pairs = append(file.Pairs, pairs.Pair{
			GPU:      &pairs.GPU{ID: p.GPU.ID, Address: p.GPU.Address, Resource: byID[p.GPU.ID].resource},
			VF:       vf(p.VF.ID),
			Distance: p.Distance.Level.String(),
			Bridges:  p.Distance.Bridges,
			Switch:   commonBridge(tree, p.GPU.Address, p.VF.Address),
		})
	}
	return file
}

// commonBridge is the lowest bridge that two functions share, beside those of their own cards; nil for none.
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

// served pairs all GPUs of the node with the VFs of a container: its own GPUs, or those it will most likely get, as placement
// pairs them; any other one with the VF that is nearest, so that whichever the container has, a VF is named for it.
func (d *deciding) served(name string, ids []string) []pairs.Served {
	vfs := allOf(d.ledger.devicesOf(name, ids))
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

// gpusOf are the GPUs of the container that VFs were just given to: those it has, those planned for it, or those beside the VFs.
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
	return allOf(gpus)
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
