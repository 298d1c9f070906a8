// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"math/bits"
	"slices"
)

// mix holds the number of devices of every resource in one integer, one field for each resource, so that one
// addition adds all numbers. The bit above each field, its guard, takes the carry. A kind with only one
// resource is counted directly and has no fields.
type mix uint64

// field is the position of a resource's number in a mix.
type field struct {
	shift  int
	wanted int
	most   int // maximum number of devices
}

// mixing describes the fields of a mix.
type mixing struct {
	gpus, vfs           bool    // whether the kind has several resources
	gpuFields, vfFields []field // by resource
	guards              mix     // all guard bits
	// slack is added to a mix; the guard of a field is then set if the field exceeds the requested number.
	slack  mix
	wanted mix
	vfMask mix // the fields of VFs
}

// mixBits is the maximum number of bits of the fields and their guards.
const mixBits = 63

// stepsPerMixed is the cost of combining two entries of several resources, in steps.
const stepsPerMixed = 12

// resource is the request for one of several resources of a kind.
type resource struct {
	Wanted int
	Most   int // maximum number of devices
}

// newMixing assigns the fields for a request and reports whether the bits suffice. A kind with at most one
// requested resource has no fields.
func newMixing(gpus, vfs []resource) (m mixing, ok bool) {
	m.gpus, m.vfs = len(gpus) > 0, len(vfs) > 0
	used := 0
	m.vfFields = m.layFields(vfs, &used)
	m.vfMask = 1<<min(used, mixBits) - 1
	m.gpuFields = m.layFields(gpus, &used)
	return m, used <= mixBits
}

func (m *mixing) isAny() bool { return m.gpus || m.vfs }

// layFields assigns the fields of a kind, the first resource in the highest bits.
func (m *mixing) layFields(of []resource, used *int) []field {
	fields := make([]field, len(of))
	for i, r := range slices.Backward(of) {
		width := bits.Len(uint(r.Wanted))
		fields[i] = field{shift: *used, wanted: r.Wanted, most: r.Most}
		*used += width + 1
		if *used <= mixBits {
			guard := mix(1) << (fields[i].shift + width)
			m.guards |= guard
			m.wanted |= mix(r.Wanted) << fields[i].shift
			m.slack |= guard - mix(1+r.Wanted)<<fields[i].shift
		}
	}
	return fields
}

// isWithin reports whether no resource exceeds the requested number.
func (m *mixing) isWithin(x mix) bool { return (x+m.slack)&m.guards == 0 }

// hasFloor reports whether x has at least floor devices of each resource.
func (m *mixing) hasFloor(x, floor mix) bool { return ((x|m.guards)-floor)&m.guards == m.guards }

// takenOf returns the number of devices of a resource in a mix.
func (f field) takenOf(x mix) int {
	return int(x >> f.shift & (1<<bits.Len(uint(f.wanted)) - 1))
}

// mixed is the data of a place that exists only with several resources of a kind.
type mixed struct {
	floors []mix     // minimum of each resource that has to come from the first 1, 2, 3 … children
	offers []offer   // of a card: the possible GPUs; of a group: the possible VFs
	stages [][]offer // of a group, by PF: the possible VFs of this PF and all previous PFs
}

// offer is one way to give devices of several resources.
type offer struct {
	count  int
	mix    mix
	cost   fillCost // of VFs
	last   mix      // of a group: the devices of the last PF
	before int      // of a group: the devices of the previous PFs, as an index of their stage
	ofNIC  int      // of a group: the VFs of the NIC that the next PF belongs to
}

// offering lists the devices that every card and every group can give.
type offering struct {
	*mixing
	budget int // remaining steps; negative after the listing was given up
}

// offerAll lists the possible devices of every card and group of a tree. It reports whether the steps
// suffice.
func offerAll(root *place, m *mixing, steps int) bool {
	o := offering{m, steps}
	o.listBelow(root)
	return o.budget >= 0
}

// supply is the supply of a resource in a part of the tree.
type supply struct{ held, most int }

// listBelow lists the possible devices of every card and group below a place, and the minimum of each place.
// It returns the supply of the place by resource, GPUs before VFs.
func (o *offering) listBelow(n *place) []supply {
	n.mixed = new(mixed)
	has := make([]supply, len(o.gpuFields)+len(o.vfFields))
	for _, child := range n.Children {
		for i, of := range o.listBelow(child) {
			has[i].held += of.held
			has[i].most += of.most
		}
		n.floors = append(n.floors, o.floorOf(has))
	}
	switch {
	case n.Kind == kindCard && o.gpus:
		addSupply(has, n.Pools)
		n.offers = o.keepReaching(o.listWays(n.Pools, o.gpuFields), o.floorOf(has))
	case n.Kind == kindGroup && o.vfs:
		for _, f := range n.PFs {
			addSupply(has[len(o.gpuFields):], f.Pools)
		}
		o.stagePFs(n)
		n.offers = o.keepReaching(n.offers, o.floorOf(has)&o.vfMask)
	}
	return has
}

func addSupply(has []supply, pools []pool) {
	for _, l := range pools {
		has[l.Resource].held += l.Held
		has[l.Resource].most += l.Most
	}
}

// floorOf returns the minimum of each resource that has to come from a part of the tree: the held devices,
// and the devices that the rest of the tree lacks.
func (m *mixing) floorOf(has []supply) mix {
	sum := mix(0)
	for i, f := range slices.Concat(m.gpuFields, m.vfFields) {
		sum += mix(max(has[i].held, f.wanted-(f.most-has[i].most))) << f.shift
	}
	return sum
}

// keepReaching keeps the offers that have at least floor devices of each resource.
func (m *mixing) keepReaching(offers []offer, floor mix) []offer {
	return slices.DeleteFunc(slices.Clone(offers), func(o offer) bool { return !m.hasFloor(o.mix, floor) })
}

// listWays lists all ways to take devices from pools. It returns nil if their number exceeds the step limit.
func (o *offering) listWays(pools []pool, fields []field) []offer {
	offers := []offer{{}}
	for _, l := range pools {
		f := fields[l.Resource]
		high := min(l.Most, f.wanted)
		ways := len(offers) * (high - l.Held + 1)
		o.budget -= stepsPerMixed * ways
		if o.budget < 0 {
			return nil
		}
		more := make([]offer, 0, ways)
		for _, before := range offers {
			for n := l.Held; n <= high; n++ {
				more = append(more, offer{count: before.count + n, mix: before.mix + mix(n)<<f.shift})
			}
		}
		offers = more
	}
	sortOffers(offers)
	return offers
}

func sortOffers(offers []offer) {
	slices.SortFunc(offers, func(a, b offer) int {
		return cmp.Or(cmp.Compare(a.count, b.count), cmp.Compare(a.mix, b.mix), cmp.Compare(a.ofNIC, b.ofNIC))
	})
}

// stagePFs finds for one PF of a group after another the cheapest way to give each mix of VFs; for all but
// the last PF of a NIC, to give each mix and number of the NIC's VFs. Of ways with the same cost it takes
// fewer VFs from the later PF.
func (o *offering) stagePFs(n *place) {
	n.offers = []offer{{}}
	type key struct {
		mix   mix
		ofNIC int
	}
	for k, f := range n.PFs {
		isLast := k+1 == len(n.PFs) || n.PFs[k+1].NIC != f.NIC
		gives := o.listWays(f.Pools, o.vfFields)
		o.budget -= stepsPerMixed * len(gives) * len(n.offers)
		if o.budget < 0 {
			return
		}
		index := map[key]int{}
		var stage []offer
		for _, last := range gives {
			for i, before := range n.offers {
				way := offer{
					count:  before.count + last.count,
					mix:    before.mix + last.mix,
					cost:   before.cost,
					last:   last.mix,
					before: i,
				}
				if !o.isWithin(way.mix) {
					continue
				}
				way.cost.degraded += int64(last.count) * asNumber(f.Degraded)
				way.cost.shared += pairsAmong(last.count)<<sharedShift +
					pairsAmong(before.ofNIC+last.count) - pairsAmong(before.ofNIC)
				way.cost.load += int64(last.count * f.Load)
				if !isLast {
					way.ofNIC = before.ofNIC + last.count
				}
				if k, known := index[key{way.mix, way.ofNIC}]; !known {
					index[key{way.mix, way.ofNIC}] = len(stage)
					stage = append(stage, way)
				} else if way.cost.compare(stage[k].cost) < 0 {
					stage[k] = way
				}
			}
		}
		sortOffers(stage)
		n.stages = append(n.stages, stage)
		n.offers = stage
	}
}

// pairsAmong returns the number of pairs of n VFs.
func pairsAmong(n int) int64 { return int64(n) * int64(n-1) / 2 }

// PlanFill decides from which PF the next VF of a group comes, for a number of VFs beyond the held ones: from
// a PF that is not degraded, then from the PF with the fewest taken VFs, then from the NIC with the fewest,
// then from the PF with the least load, then from the first PF. The cost of a PF and of its NIC grows with
// every VF taken, so this order is cheapest for any number of VFs.
func (n *place) PlanFill(further int) {
	var c fillCost
	for _, f := range n.PFs {
		f.NIC.taken = 0
	}
	for _, f := range n.PFs {
		for f.Taken = 0; f.Taken < f.Held; {
			c.addVF(f)
		}
	}
	n.fill, n.fillCosts = make([]int, further), make([]fillCost, further+1)
	n.fillCosts[0] = c
	for k := range further {
		best := -1
		for i, f := range n.PFs {
			if f.Taken < f.Most && (best < 0 || f.isCheaper(n.PFs[best])) {
				best = i
			}
		}
		c.addVF(n.PFs[best])
		n.fill[k], n.fillCosts[k+1] = best, c
	}
}

// addVF adds the cost of the next VF of a PF.
func (c *fillCost) addVF(f *pf) {
	c.degraded += asNumber(f.Degraded)
	c.shared += int64(f.Taken)<<sharedShift + int64(f.NIC.taken)
	c.load += int64(f.Load)
	f.Taken++
	f.NIC.taken++
}

// isCheaper reports whether the next VF of f is cheaper than the next VF of g.
func (f *pf) isCheaper(g *pf) bool {
	return cmp.Or(cmp.Compare(asNumber(f.Degraded), asNumber(g.Degraded)), cmp.Compare(f.Taken, g.Taken),
		cmp.Compare(f.NIC.taken, g.NIC.taken), cmp.Compare(f.Load, g.Load)) < 0
}

// asNumber returns 1 for true.
func asNumber(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// countTaken counts the marked devices of every pool below a place.
func (m *mixing) countTaken(n *place) {
	for _, child := range n.Children {
		m.countTaken(child)
	}
	switch n.Kind {
	case kindCard:
		if m.gpus {
			m.takeGPUs(n)
		} else {
			n.Pools[0].Taken = n.Chosen.GPUs
		}
	case kindGroup:
		if m.vfs {
			m.takeVFs(n)
		} else {
			n.takeVFs()
		}
	}
}

// takeVFs counts the marked VFs of the PFs of a group.
func (n *place) takeVFs() {
	for _, f := range n.PFs {
		f.Taken = f.Held
	}
	for _, i := range n.fill[:n.Chosen.VFs-n.VFs.Held] {
		n.PFs[i].Taken++
	}
	for _, f := range n.PFs {
		f.Pools[0].Taken = f.Taken
	}
}

// takeGPUs counts the marked GPUs of the pools of a card.
func (m *mixing) takeGPUs(card *place) {
	for i := range card.Pools {
		card.Pools[i].Taken = m.gpuFields[card.Pools[i].Resource].takenOf(card.Chosen.mix)
	}
}

// takeVFs counts the marked VFs of the pools of a group.
func (m *mixing) takeVFs(group *place) {
	if len(group.PFs) == 0 {
		return
	}
	wanted := group.Chosen.mix & m.vfMask
	o := group.offers[slices.IndexFunc(group.offers, func(o offer) bool { return o.mix == wanted })]
	for i, f := range slices.Backward(group.PFs) {
		f.Taken = 0
		for k := range f.Pools {
			l := &f.Pools[k]
			l.Taken = m.vfFields[l.Resource].takenOf(o.last)
			f.Taken += l.Taken
		}
		if i > 0 {
			o = group.stages[i-1][o.before]
		}
	}
}
