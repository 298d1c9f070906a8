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
	redirect int64          // what of a pair made here counts as redirected: 1, or 0
	near     int64          // locality of two GPUs that meet here
	links    int            // direct links between GPUs that meet here
	link     int64          // how near such a link makes them
	number   int            // in the order of making
	parent   *place
	direct   *place // of a bridge or root complex: the group that hangs on it directly
	below    int    // children, before they are listed
	children []*place
	first    topology.Address // lowest address of a device that may be chosen here

	content
	pools     []pool     // of a card
	pfs       []*pf      // of a group
	fill      []int32    // of a group: the PF that the next VF comes from, as an index of pfs
	fillCosts []fillCost // of a group: what the held and the first 0, 1, 2 … further VFs cost
	*mixed               // where there are several resources of a kind

	cardLow, cardHigh int // the cards below, as numbers in the order of the tree
	fixedGPUs         int // of a card or group: how many GPUs it has to give, anyNumber for whatever is best
	fixedVFs          int // of a group: how many VFs
	chosen            counts
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
	taken int // held by other containers
}

// free is how many are free now.
func (t tally) free() int { return t.most - t.held + t.spare }

// all are the devices that are free or held by whomever.
func (t tally) all() int { return t.most + t.spare + t.taken }

func (t *tally) add(u tally) {
	t.held += u.held
	t.most += u.most
	t.spare += u.spare
	t.taken += u.taken
}

// pf is a PF with its VFs that may be chosen.
type pf struct {
	address topology.Address
	group   *place
	load    int // VFs of other containers, and one for a degraded link
	held    int
	most    int // held, and free to be chosen
	taken   int // how many of them are taken, when that is known
	pools   []pool
}

// pool is what a card or PF has of one resource that may be chosen.
type pool struct {
	resource int
	held     int
	taken    int      // how many of devices are taken, when that is known
	devices  []Device // held ones first
}

// fillCost is what VFs cost that are taken from the PFs of one group.
type fillCost struct {
	shared int64 // each as many as there are of them on its PF before it
	load   int64 // each the load of its PF
}

// counts says how many GPUs, VFs and extras are taken from a place.
type counts struct {
	gpus, vfs, extras int
	mix               mix // how many of each resource
}
