// SPDX-License-Identifier: Apache-2.0

package solver

import "github.com/tandem-k8s/tandem/topology"

// Kind is the kind of a place.
type Kind uint8

// The kinds of places, from the leaves up.
const (
	Card    Kind = iota // GPUs or partitions that share a slot
	Group               // devices below one switch: cards and PFs with the same lowest shared bridge
	Bridge              // a bridge with groups and other bridges below it
	Complex             // a root complex
	Node                // a NUMA node
	System              // all NUMA nodes
	World               // the system and all devices of unknown location
)

// levelOf is the level of two devices that meet at a place of each kind.
var levelOf = [...]topology.Level{
	Card: topology.PIX, Group: topology.PIX, Bridge: topology.PXB, Complex: topology.PHB,
	Node: topology.NODE, System: topology.SYS, World: topology.UNK,
}

// Place is a node of the tree of places: the PCI tree of the node, reduced to the places where paths of a
// request's devices meet. The distance of two devices is the level of the place where their paths to the root
// meet. The exported fields are set before the search, except Chosen and the field Taken of PFs and pools.
type Place struct {
	Kind     Kind
	Level    topology.Level   // of two devices that meet here
	Depth    int              // number of shared bridges above and including this place
	Redirect int64            // 1 if pairs formed here are redirected, otherwise 0
	Parent   *Place           // nil for the root
	Children []*Place         // places with devices to choose from, ascending by First
	First    topology.Address // lowest address of a device that may be chosen here

	Content
	Pools    []Pool // of a card
	Degraded bool   // of a card: its GPUs are chosen last among equally distant ones
	PFs      []*PF  // of a group, ascending by address

	Chosen Counts // the marked counts

	near      int64      // distance of two GPUs that meet here
	links     int        // number of direct links between GPUs that meet here
	link      int64      // distance of two GPUs with such a link
	fill      []int32    // of a group: the PF of the next VF, as an index of PFs
	fillCosts []FillCost // of a group: cost of the held VFs and of the first 0, 1, 2 … further VFs
	*mixed               // set if a kind has several resources

	cardLow, cardHigh int // range of the cards below, in the order of the tree
	fixedGPUs         int // of a card or group: the number of GPUs to give, or anyNumber
	fixedVFs          int // of a group: the number of VFs to give
}

// NewPlace returns a place without devices.
func NewPlace(k Kind) Place {
	return Place{Kind: k, Level: levelOf[k], fixedGPUs: anyNumber, fixedVFs: anyNumber}
}

const anyNumber = -1

// meet adds the cost of pairs that are formed at a place: their level, whether they are redirected, and the
// bridges saved compared with the path to the root complex.
func (n *Place) meet(c *cost, pairs int64) {
	c.addPairs(n.Level, pairs)
	if n.Level.Direct() {
		c[termBridges] += pairs * (n.Redirect<<bridgesShift + int64(1-2*n.Depth))
	}
}

// Content is the supply of a place, or of some of its children.
type Content struct {
	GPUs, VFs Tally
	mostPIX   int // upper bound of its PIX pairs
}

// Add adds the supply d.
func (c *Content) Add(d Content) {
	c.GPUs.Add(d.GPUs)
	c.VFs.Add(d.VFs)
	c.mostPIX += d.mostPIX
}

// Tally counts devices of one kind below a place.
type Tally struct {
	Held  int // held
	Most  int // held devices and free devices that may be chosen
	Spare int // free devices that may not be chosen
	Taken int // devices of other containers
}

// Free returns the number of free devices.
func (t Tally) Free() int { return t.Most - t.Held + t.Spare }

// all returns the number of devices that are free or held by any container.
func (t Tally) all() int { return t.Most + t.Spare + t.Taken }

// Add adds the numbers of u.
func (t *Tally) Add(u Tally) {
	t.Held += u.Held
	t.Most += u.Most
	t.Spare += u.Spare
	t.Taken += u.Taken
}

// NIC is a card with PFs.
type NIC struct{ taken int }

// PF is a physical function with the VFs that may be chosen.
type PF struct {
	NIC      *NIC // common to the PFs of a card, which are neighbours in their group
	Degraded bool // its VFs are chosen last among equally distant ones
	Load     int  // VFs of other containers
	Held     int
	Most     int // held VFs and free VFs that may be chosen
	Taken    int // number of taken VFs, set with the result
	Pools    []Pool
}

// Pool holds the devices of one resource on a card or PF.
type Pool struct {
	Resource int
	Held     int
	Most     int // held devices and free devices that may be chosen
	Taken    int // number of taken devices, set with the result
	Number   int // number of the pool, for the caller
}

// Counts are the numbers of GPUs, VFs and extras taken from a place.
type Counts struct {
	GPUs, VFs, Extras int
	mix               mix // number of devices of each resource
}
