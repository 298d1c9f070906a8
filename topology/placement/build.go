package placement

import "github.com/tandem-k8s/tandem/topology"

// places builds the tree of places. While it does, places know their parents only.
type places struct {
	tree      *topology.Tree
	nodes     int // NUMA nodes of the machine
	root      *place
	system    *place
	numa      []numaNode
	complexes []rootComplex
	sites     map[topology.Address]*site
	pfs       []*pf
	all       []*place // in the order of making; those with nothing to choose too
	above     []topology.Address

	placePool arena[place]
	poolPool  arena[pool]
	sitePool  arena[site]
	pfPool    arena[pf]
	fills     arena[int32]
	fillCosts arena[fillCost]
}

// site is what is found at a function: its place is looked up once.
type site struct {
	bridge *place // the function as a bridge
	group  *place // where the function hangs
	card   *place // the card in the slot, kept at the slot's first function
	pf     *pf
}

// numaNode is a NUMA node that a root complex is on.
type numaNode struct {
	number int
	place  *place
}

// rootComplex keeps what is known of the NUMA node until all devices have been seen.
type rootComplex struct {
	name  string
	place *place
	numa  topology.NUMANode
}

// arena makes room for many small things at once.
type arena[T any] struct{ free []T }

func (a *arena[T]) take(n int) []T {
	const chunk = 64
	if n > len(a.free) {
		a.free = make([]T, max(n, chunk))
	}
	taken := a.free[:n:n]
	a.free = a.free[n:]
	return taken
}

func newPlaces(t *topology.Tree, devices int) *places {
	usual := min(devices, 64) // more than that is made room for when it comes
	p := &places{
		tree:  t,
		nodes: len(t.NUMANodes()),
		sites: make(map[topology.Address]*site, usual),
		all:   make([]*place, 0, usual),
		pfs:   make([]*pf, 0, usual/4),
	}
	p.root = p.new(worldPlace, nil)
	p.system = p.new(systemPlace, p.root)
	return p
}

// addAll puts the devices of a request in their places.
func (p *places) addAll(gpus, vfs *side) {
	for i := range gpus.devices {
		p.addGPU(gpus, i)
	}
	for i := range vfs.devices {
		p.addVF(vfs, i)
	}
	p.finish(vfs.count)
}

// new makes a place below a parent.
func (p *places) new(k kind, parent *place) *place {
	n := &p.placePool.take(1)[0]
	*n = place{kind: k, level: levelOf[k], number: len(p.all), parent: parent, fixedGPUs: anyNumber, fixedVFs: anyNumber}
	p.all = append(p.all, n)
	return n
}

// function is where a device is plugged in: the PF of a VF, else the device itself.
func (p *places) function(a topology.Address) topology.Address {
	if d, ok := p.tree.Device(a); ok {
		return d.Function()
	}
	return a
}

func (p *places) site(a topology.Address) *site {
	s := p.sites[a]
	if s == nil {
		s = &p.sitePool.take(1)[0]
		p.sites[a] = s
	}
	return s
}

// addGPU puts the i-th GPU on its card; one that may not be chosen is counted only.
func (p *places) addGPU(gpus *side, i int) {
	resource, t := gpus.at(i)
	address := gpus.devices[i].Address
	function := p.function(address)
	s := p.site(slotOf(function))
	if s.card == nil {
		s.card = p.new(cardPlace, p.group(p.site(function), address))
	}
	s.card.gpus.add(t)
	if t.most > 0 {
		s.card.pools = p.pooled(s.card.pools, gpus, i, resource, t)
	}
}

// pooled puts the i-th device into the pool of its resource.
func (p *places) pooled(pools []pool, of *side, i, resource int, t tally) []pool {
	k := 0
	for k < len(pools) && pools[k].resource != resource {
		k++
	}
	if k == len(pools) {
		if k == 0 {
			pools = p.poolPool.take(1)[:0]
		}
		pools = append(pools, pool{resource: resource})
	}
	pools[k].held += t.held
	pools[k].devices = joined(pools[k].devices, of.devices, i)
	return pools
}

func slotOf(function topology.Address) topology.Address {
	function.Function = 0
	return function
}

// addVF puts the i-th VF on its PF; one that may not be chosen is counted only, one of another container as the PF's load too.
func (p *places) addVF(vfs *side, i int) {
	resource, t := vfs.at(i)
	address := vfs.devices[i].Address
	function := p.function(address)
	s := p.site(function)
	p.group(s, address).vfs.add(t)
	if t.most == 0 {
		if s.pf != nil { // any that may be chosen came before
			s.pf.load += t.taken
		}
		return
	}
	if s.pf == nil {
		s.pf = &p.pfPool.take(1)[0]
		*s.pf = pf{address: function, group: s.group}
		if d, ok := p.tree.Device(function); ok && d.PCIe.Degraded() {
			s.pf.load++
		}
		p.pfs = append(p.pfs, s.pf)
	}
	s.pf.held += t.held
	s.pf.most++
	s.pf.pools = p.pooled(s.pf.pools, vfs, i, resource, t)
}

// group finds the group of a device that is plugged in at a site.
func (p *places) group(s *site, a topology.Address) *place {
	if s.group == nil {
		s.group = p.locate(a)
	}
	return s.group
}

func (p *places) locate(a topology.Address) *place {
	d, ok := p.tree.Device(a)
	if !ok { // alone in the world
		g := p.new(groupPlace, p.root)
		g.level = topology.UNK
		return g
	}
	above := p.complex(d)
	p.above = p.tree.AppendSharedBridges(p.above[:0], a)
	redirected := p.tree.Redirected(a)
	for i, address := range p.above {
		s := p.site(address)
		if s.bridge == nil {
			s.bridge = p.new(bridgePlace, above)
			s.bridge.depth = i + 1
		}
		if i < redirected {
			s.bridge.redirect = 1
		}
		above = s.bridge
	}
	if above.direct == nil {
		above.direct = p.new(groupPlace, above)
		above.direct.depth = above.depth
		if above.kind == complexPlace { // no switch: they meet in the root complex
			above.direct.level = topology.PHB
		}
	}
	if redirected > 0 && redirected == len(p.above) {
		above.direct.redirect = 1
	}
	return above.direct
}

// complex finds the root complex of a device, most likely that of the device before. It has the NUMA node of the first of its
// devices that knows one.
func (p *places) complex(d *topology.Device) *place {
	i := len(p.complexes) - 1
	for i >= 0 && p.complexes[i].name != d.RootComplex() {
		i--
	}
	if i < 0 {
		i = len(p.complexes)
		p.complexes = append(p.complexes, rootComplex{name: d.RootComplex(), place: p.new(complexPlace, nil)})
	}
	if _, known := p.complexes[i].numa.Number(); !known {
		p.complexes[i].numa = d.NUMA
	}
	return p.complexes[i].place
}
