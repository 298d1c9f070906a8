// SPDX-License-Identifier: Apache-2.0

package placement

import "github.com/tandem-k8s/tandem/topology"

// kind is the kind of a place.
type kind uint8

// The kinds of places, from the leaves up.
const (
	kindCard    kind = iota // GPUs or partitions that share a slot
	kindGroup               // devices below one switch: cards and PFs with the same lowest shared bridge
	kindBridge              // a bridge with groups and other bridges below it
	kindComplex             // a root complex
	kindNode                // a NUMA node
	kindSystem              // all NUMA nodes
	kindWorld               // the system and all devices of unknown location
)

// levelOf is the level of two devices that meet at a place of each kind.
var levelOf = [...]topology.Level{
	kindCard: topology.PIX, kindGroup: topology.PIX, kindBridge: topology.PXB, kindComplex: topology.PHB,
	kindNode: topology.NODE, kindSystem: topology.SYS, kindWorld: topology.UNK,
}

// place is a node of the tree of places: the PCI tree of the node, reduced to the places where paths of a
// request's devices meet. The distance of two devices is the level of the place where their paths to the root
// meet. The exported fields are set before the search, except Chosen and the field Taken of PFs and pools.
type place struct {
	Kind     kind
	Level    topology.Level   // of two devices that meet here
	Depth    int              // number of shared bridges above and including this place
	Redirect int64            // 1 if pairs formed here are redirected, otherwise 0
	Parent   *place           // nil for the root
	Children []*place         // places with devices to choose from, ascending by First
	First    topology.Address // lowest address of a device that may be chosen here

	content
	Pools    []pool // of a card
	Degraded bool   // of a card: its GPUs are chosen last among equally distant ones
	PFs      []*pf  // of a group, ascending by address

	Chosen counts // the marked counts

	near      int64      // distance of two GPUs that meet here
	links     int        // number of direct links between GPUs that meet here
	link      int64      // distance of two GPUs with such a link
	fill      []int      // of a group: the PF of the next VF, as an index of PFs
	fillCosts []fillCost // of a group: cost of the held VFs and of the first 0, 1, 2 … further VFs
	*mixed               // set if a kind has several resources

	cardLow, cardHigh int // range of the cards below, in the order of the tree
	fixedGPUs         int // of a card or group: the number of GPUs to give, or anyNumber
	fixedVFs          int // of a group: the number of VFs to give
}

// newPlace returns a place without devices.
func newPlace(k kind) place {
	return place{Kind: k, Level: levelOf[k], fixedGPUs: anyNumber, fixedVFs: anyNumber}
}

const anyNumber = -1

// addMeeting adds the cost of pairs that are formed at a place: their level, whether they are redirected, and
// the bridges saved compared with the path to the root complex.
func (n *place) addMeeting(c *cost, pairs int64) {
	c.addPairs(n.Level, pairs)
	if n.Level.Direct() {
		c[termBridges] += pairs * (n.Redirect<<bridgesShift + int64(1-2*n.Depth))
	}
}

// content is the supply of a place, or of some of its children.
type content struct {
	GPUs, VFs tally
	mostPIX   int // upper bound of its PIX pairs
}

// Add adds the supply d.
func (c *content) Add(d content) {
	c.GPUs.Add(d.GPUs)
	c.VFs.Add(d.VFs)
	c.mostPIX += d.mostPIX
}

// tally counts devices of one kind below a place.
type tally struct {
	Held  int // held
	Most  int // held devices and free devices that may be chosen
	Spare int // free devices that may not be chosen
	Taken int // devices of other containers
}

// Free returns the number of free devices.
func (t tally) Free() int { return t.Most - t.Held + t.Spare }

// allDevices returns the number of devices that are free or held by any container.
func (t tally) allDevices() int { return t.Most + t.Spare + t.Taken }

// Add adds the numbers of u.
func (t *tally) Add(u tally) {
	t.Held += u.Held
	t.Most += u.Most
	t.Spare += u.Spare
	t.Taken += u.Taken
}

// nic is a card with PFs.
type nic struct{ taken int }

// pf is a physical function with the VFs that may be chosen.
type pf struct {
	NIC      *nic // common to the PFs of a card, which are neighbours in their group
	Degraded bool // its VFs are chosen last among equally distant ones
	Load     int  // VFs of other containers
	Held     int
	Most     int // held VFs and free VFs that may be chosen
	Taken    int // number of taken VFs, set with the result
	Pools    []pool
}

// pool holds the devices of one resource on a card or PF.
type pool struct {
	Resource int
	Held     int
	Most     int // held devices and free devices that may be chosen
	Taken    int // number of taken devices, set with the result
	Number   int // number of the pool, for the caller
}

// counts are the numbers of GPUs, VFs and extras taken from a place.
type counts struct {
	GPUs, VFs, Extras int
	mix               mix // number of devices of each resource
}

// shares is the number of partners of each device. The number of pairs is the size of the larger half. Each
// device of the larger half is in one pair; each device of the smaller half is in an equal number of pairs,
// and some of them, the extras, are in one more.
type shares struct {
	GPUs, VFs         int // wanted
	Pairs             int // 0 if a half is empty
	PerGPU, PerVF     int // partners of each device, without its extra
	GPUExtra, VFExtra int // number of extras of the smaller half; 0 for the other half
	extras            int // the nonzero one of GPUExtra and VFExtra, if any
}

// newShares returns the shares of the given numbers of GPUs and VFs.
func newShares(gpus, vfs int) shares {
	s := shares{GPUs: gpus, VFs: vfs}
	if gpus == 0 || vfs == 0 {
		return s
	}
	s.Pairs = max(gpus, vfs)
	if vfs >= gpus {
		s.PerGPU, s.PerVF, s.extras = vfs/gpus, 1, vfs%gpus
		s.GPUExtra = s.extras
	} else {
		s.PerGPU, s.PerVF, s.extras = 1, gpus/vfs, gpus%vfs
		s.VFExtra = s.extras
	}
	return s
}

// unitsOf returns the number of pairs of g GPUs and v VFs if e of the devices that can be extras are extras.
func (s *shares) unitsOf(g, v, e int) (ofGPUs, ofVFs int) {
	ofGPUs, ofVFs = s.PerGPU*g, s.PerVF*v
	if s.GPUExtra > 0 {
		ofGPUs += e
	} else if s.VFExtra > 0 {
		ofVFs += e
	}
	return ofGPUs, ofVFs
}

// mostExtras returns the maximum number of extras among g GPUs and v VFs.
func (s *shares) mostExtras(g, v int) int {
	if s.GPUExtra > 0 {
		return min(g, s.extras)
	}
	return min(v, s.extras) // s.extras is 0 if neither half has extras
}

// pairsOf returns the number of pairs that the counts of a place form below it.
func (s *shares) pairsOf(c *counts) int {
	ofGPUs, ofVFs := s.unitsOf(c.GPUs, c.VFs, c.Extras)
	return min(ofGPUs, ofVFs)
}

// limits are the conditions of an entry to be part of a choice.
type limits struct {
	shares
	root  *place
	limit int  // maximum number of pairs beyond PIX
	loose bool // extras follow the VFs instead of being tried in all numbers
}

// isWithin reports whether a part of the tree with the given pairs beyond PIX can be part of a choice within
// the limit. Devices of the part without a partner add pairs beyond PIX, and the rest of the tree has a
// limited number of PIX pairs.
func (l *limits) isWithin(part *content, beyond, ofGPUs, ofVFs int) bool {
	pix := min(ofGPUs, ofVFs) - beyond
	return beyond+max(ofGPUs-ofVFs, ofVFs-ofGPUs) <= l.limit &&
		pix+l.root.mostPIX-part.mostPIX >= l.Pairs-l.limit
}

// fewestVFs returns the minimum number of VFs for a number of GPUs such that the pairs beyond PIX stay within
// the limit.
func (l *limits) fewestVFs(gpus int) int {
	if l.Pairs == 0 {
		return 0
	}
	_, ofVFs := l.extraSlack()
	if d := l.PerGPU*gpus - l.limit - ofVFs; d > 0 {
		return (d + l.PerVF - 1) / l.PerVF
	}
	return 0
}

// extraSlack returns the maximum number of extras among the GPUs and VFs of an entry.
func (l *limits) extraSlack() (ofGPUs, ofVFs int) {
	switch {
	case !l.loose:
		return l.GPUExtra, l.VFExtra
	case l.GPUExtra > 0:
		return l.GPUs, 0
	default:
		return 0, l.VFs
	}
}

// vfRange returns the range of VFs that a group can give together with a number of GPUs.
func (l *limits) vfRange(n *place, gpus int) (low, high int) {
	if n.fixedVFs != anyNumber {
		return n.fixedVFs, n.fixedVFs
	}
	low, high = fewestFrom(l.VFs, n.VFs, l.root.VFs), min(n.VFs.Most, l.VFs)
	if l.Pairs > 0 {
		low = max(low, l.fewestVFs(gpus))
		ofGPUs, _ := l.extraSlack()
		high = min(high, (l.PerGPU*gpus+ofGPUs+l.limit)/l.PerVF)
	}
	return low, high
}

// fewestFrom returns the minimum number of devices that have to come from a part of the tree: the held
// devices and the devices that the rest of the tree lacks.
func fewestFrom(wanted int, part, all tally) int {
	return max(part.Held, wanted-(all.Most-part.Most))
}

// extrasRange returns the range of extras that a number of GPUs and VFs can have. The devices elsewhere must
// be able to take the remaining extras, one each.
func (l *limits) extrasRange(gpus, vfs int) (low, high int) {
	high = l.mostExtras(gpus, vfs)
	if l.loose {
		follow := vfs - l.PerGPU*gpus
		if l.VFExtra > 0 {
			follow = gpus - l.PerVF*vfs
		}
		follow = min(max(follow, 0), high)
		return follow, follow
	}
	return l.extras - l.mostExtras(l.GPUs-gpus, l.VFs-vfs), high
}

// boundPIX sets for every place an upper bound of its PIX pairs: the sum of the PIX pairs that each switch
// could have independently of the others.
func (n *place) boundPIX(s *shares) {
	n.mostPIX = 0
	for _, child := range n.Children {
		child.boundPIX(s)
		n.mostPIX += child.mostPIX
	}
	if n.Kind == kindGroup && n.Level == topology.PIX {
		g, v := min(n.GPUs.Most, s.GPUs), min(n.VFs.Most, s.VFs)
		n.mostPIX = min(s.unitsOf(g, v, s.mostExtras(g, v)))
	}
}
