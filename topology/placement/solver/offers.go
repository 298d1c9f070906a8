// SPDX-License-Identifier: Apache-2.0

package solver

import (
	"cmp"
	"slices"
)

// offering lists the devices that every card and every group can give.
type offering struct {
	*mixing
	budget int // remaining steps; negative after the listing was given up
}

// offerAll lists the possible devices of every card and group of a tree. It reports whether the steps
// suffice.
func offerAll(root *Place, m *mixing, steps int) bool {
	o := offering{m, steps}
	o.below(root)
	return o.budget >= 0
}

// supply is the supply of a resource in a part of the tree.
type supply struct{ held, most int }

// below lists the possible devices of every card and group below a place, and the minimum of each place.
// It returns the supply of the place by resource, GPUs before VFs.
func (o *offering) below(n *Place) []supply {
	n.mixed = new(mixed)
	has := make([]supply, len(o.gpuFields)+len(o.vfFields))
	for _, child := range n.Children {
		for i, of := range o.below(child) {
			has[i].held += of.held
			has[i].most += of.most
		}
		n.floors = append(n.floors, o.floor(has))
	}
	switch {
	case n.Kind == Card && o.gpus:
		add(has, n.Pools)
		n.offers = o.reaching(o.of(n.Pools, o.gpuFields), o.floor(has))
	case n.Kind == Group && o.vfs:
		for _, f := range n.PFs {
			add(has[len(o.gpuFields):], f.Pools)
		}
		o.stage(n)
		n.offers = o.reaching(n.offers, o.floor(has)&o.vfMask)
	}
	return has
}

func add(has []supply, pools []Pool) {
	for _, l := range pools {
		has[l.Resource].held += l.Held
		has[l.Resource].most += l.Most
	}
}

// floor returns the minimum of each resource that has to come from a part of the tree: the held devices, and
// the devices that the rest of the tree lacks.
func (m *mixing) floor(has []supply) mix {
	sum := mix(0)
	for i, f := range slices.Concat(m.gpuFields, m.vfFields) {
		sum += mix(max(has[i].held, f.wanted-(f.most-has[i].most))) << f.shift
	}
	return sum
}

// reaching keeps the offers that have at least floor devices of each resource.
func (m *mixing) reaching(offers []offer, floor mix) []offer {
	return slices.DeleteFunc(slices.Clone(offers), func(o offer) bool { return !m.reaches(o.mix, floor) })
}

// of lists all ways to take devices from pools. It returns nil if their number exceeds the step limit.
func (o *offering) of(pools []Pool, fields []field) []offer {
	offers := []offer{{}}
	for _, l := range pools {
		f := fields[l.Resource]
		high := min(l.Most, f.wanted)
		ways := len(offers) * (high - l.Held + 1)
		if o.budget -= stepsPerMixed * ways; o.budget < 0 {
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

// stage finds for one PF of a group after another the cheapest way to give each mix of VFs; for all but the
// last PF of a NIC, to give each mix and number of the NIC's VFs. Of ways with the same cost it takes fewer
// VFs from the later PF.
func (o *offering) stage(n *Place) {
	n.offers = []offer{{}}
	type key struct {
		mix   mix
		ofNIC int
	}
	for k, f := range n.PFs {
		isLast := k+1 == len(n.PFs) || n.PFs[k+1].NIC != f.NIC
		gives := o.of(f.Pools, o.vfFields)
		if o.budget -= stepsPerMixed * len(gives) * len(n.offers); o.budget < 0 {
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
				if !o.fits(way.mix) {
					continue
				}
				way.cost.degraded += int64(last.count) * number(f.Degraded)
				way.cost.shared += pairs(last.count)<<sharedShift + pairs(before.ofNIC+last.count) - pairs(before.ofNIC)
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

// pairs returns the number of pairs of n VFs.
func pairs(n int) int64 { return int64(n) * int64(n-1) / 2 }
