package solver

import "github.com/tandem-k8s/tandem/topology"

// Kind is a kind of place.
type Kind uint8

// The kinds of place, from the leaves up.
const (
	Card    Kind = iota // GPUs or partitions that share a slot
	Group               // what hangs on one switch: cards and PFs with the same lowest shared bridge, or none
	Bridge              // a bridge with groups and further bridges below it
	Complex             // a root complex
	Node                // a NUMA node
	System              // all NUMA nodes
	World               // the system and whatever cannot be told where it is
)

// levelOf is the level of two devices that meet at a place of this kind.
var levelOf = [...]topology.Level{
	Card: topology.PIX, Group: topology.PIX, Bridge: topology.PXB, Complex: topology.PHB,
	Node: topology.NODE, System: topology.SYS, World: topology.UNK,
}

// Place is a node of the tree of places: the PCI tree of the node, reduced to where the devices of a request
// can meet. Two devices are as far apart as the level of the place where their paths to the root meet says.
// What is exported is known before anything is chosen, but for Chosen and what is Taken of PFs and pools.
type Place struct {
	Kind     Kind
	Level    topology.Level   // of two devices that meet here
	Depth    int              // shared bridges above and including this place
	Redirect int64            // what of a pair made here counts as redirected: 1, or 0
	Parent   *Place           // nil for the root
	Children []*Place         // those with something to choose, ascending by First
	First    topology.Address // lowest of a device that may be chosen here

	Content
	Pools []Pool // of a card
	PFs   []*PF  // of a group, ascending by address

	Chosen Counts // what is marked to be taken

	near      int64      // locality of two GPUs that meet here
	links     int        // direct links between GPUs that meet here
	link      int64      // how near such a link makes them
	fill      []int32    // of a group: the PF that the next VF comes from, as an index of PFs
	fillCosts []FillCost // of a group: what the held and the first 0, 1, 2 … further VFs cost
	*mixed               // where there are several resources of a kind

	cardLow, cardHigh int // the cards below, as numbers in the order of the tree
	fixedGPUs         int // of a card or group: how many GPUs it has to give, anyNumber for whatever is best
	fixedVFs          int // of a group: how many VFs
}

// NewPlace is a place that nothing hangs on yet.
func NewPlace(k Kind) Place {
	return Place{Kind: k, Level: levelOf[k], fixedGPUs: anyNumber, fixedVFs: anyNumber}
}

const anyNumber = -1

// Content is what a place, or a few of its children, has to give.
type Content struct {
	GPUs, VFs Tally
	mostPIX   int // PIX pairs that can be made of it
}

// Add counts what another one has, too.
func (c *Content) Add(d Content) {
	c.GPUs.Add(d.GPUs)
	c.VFs.Add(d.VFs)
	c.mostPIX += d.mostPIX
}

// Tally counts devices of one half below a place.
type Tally struct {
	Held  int // held
	Most  int // held, and free to be chosen
	Spare int // free and not to be chosen
	Taken int // held by other containers
}

// Free is how many are free now.
func (t Tally) Free() int { return t.Most - t.Held + t.Spare }

// all are the devices that are free or held by whomever.
func (t Tally) all() int { return t.Most + t.Spare + t.Taken }

// Add counts another one's, too.
func (t *Tally) Add(u Tally) {
	t.Held += u.Held
	t.Most += u.Most
	t.Spare += u.Spare
	t.Taken += u.Taken
}

// PF is a PF with its VFs that may be chosen.
type PF struct {
	Load  int // VFs of other containers, and one for a degraded link
	Held  int
	Most  int // held, and free to be chosen
	Taken int // how many of them are taken, when that is known
	Pools []Pool
}

// Pool is what a card or PF has of one resource that may be chosen.
type Pool struct {
	Resource int
	Held     int
	Most     int // held, and free to be chosen
	Taken    int // how many of them are taken, when that is known
	Number   int // of the pool, for those who know its devices
}

// Counts says how many GPUs, VFs and extras are taken from a place.
type Counts struct {
	GPUs, VFs, Extras int
	mix               mix // how many of each resource
}
