package simulation

import (
	"cmp"
	"math"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// bound computes the most pairs that any choice can make, even one that knows when every container comes and goes. As long as the
// kubelet decides by numbers alone who is admitted to which NUMA nodes, these admissions are the same whatever is chosen, and the nodes
// are separate problems: on each, go through all the ways in which its containers can hold its devices. What tells two of
// them apart is only which containers meet on a switch, so that there are few where a node has few devices.
type bound struct {
	node    *world.Node
	domains []domain // by NUMA node
	pairs   int      // asked for
}

// domain is a NUMA node.
type domain struct {
	switches []capacity
	known    bool // every container so far is one whose numbers on this node do not depend on the choice
	ways     map[holding]int
	next     map[holding]int
	holders  map[int]byte // by container
	used     [256]bool
}

// alike reports whether two NUMA nodes have switches of the same sizes.
func (d *domain) alike(other *domain) bool {
	return slices.EqualFunc(d.switches, other.switches, func(a, b capacity) bool { return a.gpus == b.gpus && a.vfs == b.vfs })
}

// capacity is where the devices of a switch are in a holding.
type capacity struct{ onSwitch, from, gpus, vfs int }

// holding says which container holds each device, 0 for none. Switches of the same size, and devices of the same kind on
// one switch, are in ascending order: they are alike.
type holding [mostHeld]byte

const (
	mostHeld = 16   // devices of a NUMA node
	mostWays = 3000 // of holding them; more take too long to go through
)

func newBound(n *world.Node) *bound {
	b := &bound{node: n, domains: make([]domain, len(n.NUMA))}
	for i := range b.domains {
		b.domains[i] = newDomain(n, i)
	}
	return b
}

func newDomain(n *world.Node, numa int) domain {
	d := domain{known: true, ways: map[holding]int{{}: 0}, next: map[holding]int{}, holders: map[int]byte{}}
	d.used[0] = true
	sizes := make([]capacity, n.Switches)
	for _, kind := range world.Kinds {
		for _, dev := range n.Devices[kind] {
			switch {
			case dev.NUMA != numa:
			case dev.Switch < 0:
				d.known = false
			case kind == world.GPU:
				sizes[dev.Switch].gpus++
			default:
				sizes[dev.Switch].vfs++
			}
		}
	}
	for i, c := range sizes {
		if c.gpus+c.vfs > 0 {
			c.onSwitch = i
			d.switches = append(d.switches, c)
		}
	}
	slices.SortStableFunc(d.switches, func(a, b capacity) int { return cmp.Or(a.gpus-b.gpus, a.vfs-b.vfs) })
	from := 0
	for i := range d.switches {
		c := &d.switches[i]
		c.from = from
		from += c.gpus + c.vfs
	}
	d.known = d.known && from <= mostHeld
	return d
}

// admit adds a container that was given devices among those free on some NUMA nodes, all of them where it spans several.
func (b *bound) admit(id int, c world.Container, s *world.State, mask hints.Mask, counts bool) {
	value := 0
	if counts && c.Request.Both() {
		value = 1
		b.pairs += c.Request.Pairs()
	}
	settled := mask.Count() == 1
	if !settled {
		settled = c.Request.GPUs == s.FreeAt(world.GPU, mask) && c.Request.VFs == s.FreeAt(world.VF, mask) && mask != 0
	}
	for i := range b.domains {
		var on [2]int
		for _, kind := range world.Kinds {
			for _, dev := range c.Devices[kind] {
				if b.node.Devices[kind][dev].NUMA == i {
					on[kind]++
				}
			}
		}
		if on[world.GPU]+on[world.VF] > 0 {
			d := &b.domains[i]
			d.known = d.known && settled
			d.admit(id, on[world.GPU], on[world.VF], value)
		}
	}
}

// release takes a container away.
func (b *bound) release(id int) {
	for i := range b.domains {
		b.domains[i].release(id)
	}
}

// share is the bound on the PIX share, in percent; NaN where it is not known.
func (b *bound) share() float64 {
	most := 0
	for i := range b.domains {
		best := 0
		for _, pairs := range b.domains[i].ways {
			best = max(best, pairs)
		}
		most += best
		if !b.domains[i].known {
			return math.NaN()
		}
	}
	return percent(most, b.pairs)
}

func (d *domain) admit(id, gpus, vfs, value int) {
	if !d.known {
		return
	}
	holder := byte(slices.Index(d.used[:], false))
	d.used[holder], d.holders[id] = true, holder
	clear(d.next)
	for h, pairs := range d.ways {
		d.place(h, 0, taking{gpus, vfs}, holder, 0, func(h holding, made int) { d.keep(h, pairs+value*made) })
	}
	d.ways, d.next = d.next, d.ways
	d.known = len(d.ways) > 0 && len(d.ways) <= mostWays
}

// place gives a container devices of the i-th switch and of those after it, in all ways that there are, and tells each with the pairs
// that it makes. Free devices come first on every switch.
func (d *domain) place(h holding, i int, rest taking, holder byte, pairs int, done func(h holding, pairs int)) {
	if rest == (taking{}) {
		done(h, pairs)
		return
	}
	if i == len(d.switches) {
		return
	}
	c := d.switches[i]
	for g := 0; g <= min(free(c.gpusOf(&h)), rest.gpus); g++ {
		for v := 0; v <= min(free(c.vfsOf(&h)), rest.vfs); v++ {
			next := h
			hold(c.gpusOf(&next), g, holder)
			hold(c.vfsOf(&next), v, holder)
			d.place(next, i+1, taking{rest.gpus - g, rest.vfs - v}, holder, pairs+min(g, v), done)
		}
	}
}

func (c capacity) gpusOf(h *holding) []byte { return h[c.from : c.from+c.gpus] }
func (c capacity) vfsOf(h *holding) []byte  { return h[c.from+c.gpus : c.from+c.gpus+c.vfs] }

// free counts the free devices of a list; they come first.
func free(list []byte) int {
	n := 0
	for n < len(list) && list[n] == 0 {
		n++
	}
	return n
}

// hold marks the last of the free devices, which keep their place at the front.
func hold(list []byte, n int, holder byte) {
	from := free(list)
	for i := from - n; i < from; i++ {
		list[i] = holder
	}
}

// keep remembers the most pairs that lead to a way of holding the devices.
func (d *domain) keep(h holding, pairs int) {
	for _, c := range d.switches {
		slices.Sort(c.gpusOf(&h))
		slices.Sort(c.vfsOf(&h))
	}
	for i := 1; i < len(d.switches); i++ {
		for k := i; k > 0 && d.inverted(&h, d.switches[k-1], d.switches[k]); k-- {
			for n := range d.switches[k].gpus + d.switches[k].vfs {
				a, b := d.switches[k-1].from+n, d.switches[k].from+n
				h[a], h[b] = h[b], h[a]
			}
		}
	}
	if best, ok := d.next[h]; !ok || pairs > best {
		d.next[h] = pairs
	}
}

// inverted reports whether two switches of the same size are not in order.
func (d *domain) inverted(h *holding, a, b capacity) bool {
	size := a.gpus + a.vfs
	return a.gpus == b.gpus && a.vfs == b.vfs && slices.Compare(h[a.from:a.from+size], h[b.from:b.from+size]) > 0
}

func (d *domain) release(id int) {
	holder, ok := d.holders[id]
	if !ok || !d.known {
		return
	}
	delete(d.holders, id)
	d.used[holder] = false
	clear(d.next)
	for h, pairs := range d.ways {
		for i, by := range h {
			if by == holder {
				h[i] = 0
			}
		}
		d.keep(h, pairs)
	}
	d.ways, d.next = d.next, d.ways
}
