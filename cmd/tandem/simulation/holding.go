// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
)

// domain is a NUMA node.
type domain struct {
	switches []capacity
	known    bool // the numbers of every container so far on this node do not depend on the choice
	ways     map[holding]int
	next     map[holding]int
	holders  map[int]byte // by container
	used     [256]bool
}

// alike reports whether two NUMA nodes have switches of the same sizes.
func (d *domain) alike(other *domain) bool {
	return slices.EqualFunc(d.switches, other.switches, func(a, b capacity) bool {
		return a.gpus == b.gpus && a.vfs == b.vfs
	})
}

// capacity locates the devices of a switch in a holding.
type capacity struct{ onSwitch, from, gpus, vfs int }

// holding has the container of each device, 0 for none. Switches of the same size, and devices of one kind on
// one switch, are interchangeable and sorted.
type holding [mostHeld]byte

const (
	mostHeld = 16   // devices of a NUMA node
	mostWays = 3000 // of holding devices; an enumeration of more takes too long
)

// taking is a number of devices of each kind.
type taking struct{ gpus, vfs int }

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

// place gives a container devices of the i-th and later switches in all possible ways, and calls done with
// each holding and its pairs. Free devices come first on every switch.
func (d *domain) place(
	h holding, i int, rest taking, holder byte, pairs int, done func(h holding, pairs int),
) {
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

// free returns the number of free devices of a list, which come first.
func free(list []byte) int {
	n := 0
	for n < len(list) && list[n] == 0 {
		n++
	}
	return n
}

// hold marks the last n free devices, so that the free ones stay in front.
func hold(list []byte, n int, holder byte) {
	from := free(list)
	for i := from - n; i < from; i++ {
		list[i] = holder
	}
}
