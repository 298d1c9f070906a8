// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement/solver"
)

// addAll adds the devices of a request to the tree.
func (p *places) addAll(gpus, vfs *side) {
	for i := range gpus.devices {
		p.addGPU(gpus, i)
	}
	for i := range vfs.devices {
		p.addVF(vfs, i)
	}
	p.finish(vfs.count)
}

// addGPU adds the i-th GPU to its card; a GPU that may not be chosen is only counted.
func (p *places) addGPU(gpus *side, i int) {
	resource, t := gpus.parts[i].resource, gpus.parts[i].tally
	address := gpus.devices[i].Address
	function := p.function(address)
	s := p.site(function.Slot())
	if s.card == nil {
		s.card = p.new(solver.Card, p.group(p.site(function), address))
	}
	if t.Most > 0 {
		see(&s.card.Place, address)
		s.card.Pools = p.pooled(s.card.Pools, gpus, i, resource, t)
	}
	s.card.GPUs.Add(t)
}

// pooled adds the i-th device to the pool of its resource.
func (p *places) pooled(pools []solver.Pool, of *side, i, resource int, t solver.Tally) []solver.Pool {
	k := 0
	for k < len(pools) && pools[k].Resource != resource {
		k++
	}
	if k == len(pools) {
		if k == 0 {
			pools = p.poolPool.take(1)[:0]
		}
		pools = append(pools, solver.Pool{Resource: resource, Number: len(p.devices)})
		p.devices = append(p.devices, nil)
	}
	l := &pools[k]
	l.Held += t.Held
	l.Most++
	p.devices[l.Number] = joined(p.devices[l.Number], of.devices, i)
	return pools
}

// addVF adds the i-th VF to its PF; a VF that may not be chosen is only counted, and a VF of another
// container also adds to the PF's load.
func (p *places) addVF(vfs *side, i int) {
	resource, t := vfs.parts[i].resource, vfs.parts[i].tally
	address := vfs.devices[i].Address
	function := p.function(address)
	s := p.site(function)
	group := p.group(s, address)
	if t.Most > 0 {
		see(&group.Place, address)
	}
	group.VFs.Add(t)
	if t.Most == 0 {
		if s.pf != nil { // a VF of the PF that may be chosen came before
			s.pf.Load += t.Taken
		}
		return
	}
	if s.pf == nil {
		s.pf = &p.portPool.take(1)[0]
		*s.pf = port{address: function, group: s.group}
		if d, ok := p.tree.Device(function); ok && d.PCIe.Degraded() {
			s.pf.Load++
		}
		p.pfs = append(p.pfs, s.pf)
	}
	s.pf.Held += t.Held
	s.pf.Most++
	s.pf.Pools = p.pooled(s.pf.Pools, vfs, i, resource, t)
}

// group returns the group of a device at a site.
func (p *places) group(s *site, a topology.Address) *spot {
	if s.group == nil {
		s.group = p.locate(a)
	}
	return s.group
}

func (p *places) locate(a topology.Address) *spot {
	d, ok := p.tree.Device(a)
	if !ok { // not in the tree
		g := p.new(solver.Group, p.world)
		g.Level = topology.UNK
		return g
	}
	above := p.complex(d)
	p.above = p.tree.AppendSharedBridges(p.above[:0], a)
	redirected := p.tree.Redirected(a)
	for i, address := range p.above {
		s := p.site(address)
		if s.bridge == nil {
			s.bridge = p.new(solver.Bridge, above)
			s.bridge.Depth = i + 1
		}
		if i < redirected {
			s.bridge.Redirect = 1
		}
		above = s.bridge
	}
	if above.direct == nil {
		above.direct = p.new(solver.Group, above)
		above.direct.Depth = above.Depth
		if above.Kind == solver.Complex { // no switch: the devices meet in the root complex
			above.direct.Level = topology.PHB
		}
	}
	if redirected > 0 && redirected == len(p.above) {
		above.direct.Redirect = 1
	}
	return above.direct
}

// complex returns the root complex of a device, which is often that of the previous device. The NUMA node of
// a root complex is that of its first device with a known node.
func (p *places) complex(d *topology.Device) *spot {
	i := len(p.complexes) - 1
	for i >= 0 && p.complexes[i].name != d.RootComplex() {
		i--
	}
	if i < 0 {
		i = len(p.complexes)
		p.complexes = append(p.complexes, rootComplex{name: d.RootComplex(), place: p.new(solver.Complex, nil)})
	}
	if _, known := p.complexes[i].numa.Number(); !known {
		p.complexes[i].numa = d.NUMA
	}
	return p.complexes[i].place
}
