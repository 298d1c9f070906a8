package placement

import "github.com/tandem-k8s/tandem/topology"

type kind uint8

// The kinds of place, from the leaves up.
const (
	cardPlace    kind = iota // GPUs or partitions that share a slot
	groupPlace               // what hangs on one switch: the cards and PFs whose lowest shared bridge is the same, or is none
	bridgePlace              // a bridge with groups and further bridges below it
	complexPlace             // a root complex
	nodePlace                // a NUMA node
	systemPlace              // all NUMA nodes
	worldPlace               // the system and whatever cannot be told where it is
)

// levelOf is the level of two devices that meet at a place of this kind.
var levelOf = [...]topology.Level{
	cardPlace: topology.PIX, groupPlace: topology.PIX, bridgePlace: topology.PXB, complexPlace: topology.PHB,
	nodePlace: topology.NODE, systemPlace: topology.SYS, worldPlace: topology.UNK,
}

// place is a node of the tree of places: the PCI tree of the node, reduced to where the devices of a request can meet.
// Two devices are as far apart as the level of the place where their paths to the root meet says.
type place struct {
	kind     kind
	level    topology.Level // of two devices that meet here
	depth    int            // shared bridges above and including this place
	near     int64          // locality of two GPUs that meet here
	parent   *place
	direct   *place // of a bridge or root complex: the group that hangs on it directly
	children []*place
	first    topology.Address // lowest address of a device that may be chosen here

	content
	devices []Device // of a card: held ones first
	pfs     []*pf    // of a group
	fill    []int    // of a group: the PF that the next VF comes from, as an index of pfs
	loads   []int64  // of a group: what the load of the held and the first 0, 1, 2 … further VFs costs

	cardLow, cardHigh int // the cards below, as numbers in the order of the tree
	fixedGPUs         int // of a card or group: how many GPUs it has to give, anyNumber for whatever is best
	fixedVFs          int // of a group: how many VFs
	chosen            entry
}

// content is what a place, or a few of its children, has to give.
type content struct {
	gpus, vfs tally
	mostPIX   int // PIX pairs that can be made of it
}

func (c *content) add(d content) {
	c.gpus.add(d.gpus)
	c.vfs.add(d.vfs)
	c.mostPIX += d.mostPIX
}

const anyNumber = -1

// tally counts devices of one half below a place.
type tally struct {
	held  int // held
	most  int // held, and free to be chosen
	spare int // free and not to be chosen
}

// free is how many are free now.
func (t tally) free() int { return t.most - t.held + t.spare }

func (t *tally) add(u tally) {
	t.held += u.held
	t.most += u.most
	t.spare += u.spare
}

// pf is a PF with its VFs that may be chosen.
type pf struct {
	address topology.Address
	load    int // VFs of other containers, and one for a degraded link
	held    int
	devices []Device // held ones first
}

// places builds the tree of places.
type places struct {
	tree      *topology.Tree
	nodes     int // NUMA nodes of the machine
	root      *place
	system    *place
	numa      map[int]*place
	complexes map[string]*rootComplex
	bridges   map[topology.Address]*place
	groups    map[topology.Address]*place // by function, so that a function is looked up once
	cards     map[topology.Address]*place // by slot
	pfs       map[topology.Address]*pf
	all       []*place // every group, those with nothing to choose too
	pool      []place
}

// rootComplex keeps what is known of the NUMA node until all devices have been seen.
type rootComplex struct {
	place *place
	numa  topology.NUMANode
}

func newPlaces(t *topology.Tree) *places {
	p := &places{
		tree:      t,
		nodes:     len(t.NUMANodes()),
		numa:      map[int]*place{},
		complexes: map[string]*rootComplex{},
		bridges:   map[topology.Address]*place{},
		groups:    map[topology.Address]*place{},
		cards:     map[topology.Address]*place{},
		pfs:       map[topology.Address]*pf{},
	}
	p.root = p.new(worldPlace, nil)
	p.system = p.new(systemPlace, p.root)
	return p
}

// addAll puts the devices of a request in their places.
func (p *places) addAll(gpus, vfs side, r Request) {
	for i, d := range gpus.devices {
		p.addGPU(d, gpus.tally(i))
	}
	for i, d := range vfs.devices {
		p.addVF(d, vfs.tally(i), r.Load)
	}
	for _, d := range gpus.unseen(r.Spare.GPUs) {
		p.addGPU(d, tally{spare: 1})
	}
	for _, d := range vfs.unseen(r.Spare.VFs) {
		p.addVF(d, tally{spare: 1}, nil)
	}
	p.finish(vfs.count)
}

// tally counts the i-th device. Where none is wanted, what may be chosen is as good as spare.
func (s *side) tally(i int) tally {
	switch {
	case i < s.held:
		return tally{held: 1, most: 1}
	case s.count == 0:
		return tally{spare: 1}
	default:
		return tally{most: 1}
	}
}

// unseen leaves out devices that the half names too, and those named twice.
func (s *side) unseen(spare []Device) []Device {
	var rest []Device
	for _, d := range ordered(spare) {
		if !s.ids[d.ID] {
			s.ids[d.ID] = true
			rest = append(rest, d)
		}
	}
	return rest
}

// new makes a place below a parent. Places come from chunks: there are many small ones.
func (p *places) new(k kind, parent *place) *place {
	if len(p.pool) == cap(p.pool) {
		p.pool = make([]place, 0, 64)
	}
	p.pool = append(p.pool, place{kind: k, level: levelOf[k], parent: parent, fixedGPUs: anyNumber, fixedVFs: anyNumber})
	n := &p.pool[len(p.pool)-1]
	if parent != nil {
		parent.children = append(parent.children, n)
	}
	return n
}

// function is where a device is plugged in: the PF of a VF, else the device itself.
func (p *places) function(a topology.Address) topology.Address {
	if d, ok := p.tree.Device(a); ok {
		return d.Function()
	}
	return a
}

// addGPU puts a GPU on its card; a spare one is counted only.
func (p *places) addGPU(d Device, t tally) {
	function := p.function(d.Address)
	slot := function
	slot.Function = 0
	c := p.cards[slot]
	if c == nil {
		c = p.new(cardPlace, p.group(function, d.Address))
		p.cards[slot] = c
	}
	c.gpus.add(t)
	if t.most > 0 {
		c.devices = append(c.devices, d)
	}
}

// addVF puts a VF on its PF; a spare one is counted only.
func (p *places) addVF(d Device, t tally, loads map[topology.Address]int) {
	function := p.function(d.Address)
	g := p.group(function, d.Address)
	g.vfs.add(t)
	if t.most == 0 {
		return
	}
	f := p.pfs[function]
	if f == nil {
		f = &pf{address: function, load: loads[function], devices: make([]Device, 0, 8)}
		if pd, ok := p.tree.Device(function); ok && pd.PCIe.Degraded() {
			f.load++
		}
		p.pfs[function] = f
		g.pfs = append(g.pfs, f)
	}
	f.held += t.held
	f.devices = append(f.devices, d)
}

// group finds the group of a device that is plugged in at a function.
func (p *places) group(function, a topology.Address) *place {
	if g := p.groups[function]; g != nil {
		return g
	}
	g := p.locate(a)
	p.groups[function] = g
	return g
}

func (p *places) locate(a topology.Address) *place {
	d, ok := p.tree.Device(a)
	if !ok { // alone in the world
		g := p.new(groupPlace, p.root)
		g.level = topology.UNK
		p.all = append(p.all, g)
		return g
	}
	above := p.complex(d)
	for i, address := range p.tree.SharedBridges(a) {
		b := p.bridges[address]
		if b == nil {
			b = p.new(bridgePlace, above)
			b.depth = i + 1
			p.bridges[address] = b
		}
		above = b
	}
	if above.direct == nil {
		above.direct = p.new(groupPlace, above)
		above.direct.depth = above.depth
		if above.kind == complexPlace { // no switch: they meet in the root complex
			above.direct.level = topology.PHB
		}
		p.all = append(p.all, above.direct)
	}
	return above.direct
}

// complex finds the root complex of a device. It has the NUMA node of the first of its devices that knows one.
func (p *places) complex(d *topology.Device) *place {
	c := p.complexes[d.RootComplex()]
	if c == nil {
		c = &rootComplex{place: p.new(complexPlace, nil)}
		p.complexes[d.RootComplex()] = c
	}
	if _, known := c.numa.Number(); !known {
		c.numa = d.NUMA
	}
	return c.place
}
