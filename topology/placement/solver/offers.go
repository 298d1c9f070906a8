// SPDX-License-Identifier: Apache-2.0

package solver

import (
	"cmp"
	"slices"
)

// mix assigns the fields for the request and lists the possible devices of every card and every group. It
// reports whether the fields and the step limit suffice. A kind with at most one requested resource has no
// fields.
func (s *Solver) mix(gpus, vfs []Resource) bool {
	m := &s.mixing
	m.gpus, m.vfs = len(gpus) > 0, len(vfs) > 0
	if !m.any() {
		return true
	}
	used := 0
	if m.vfs {
		m.vfFields = m.lay(vfs, &used)
		m.vfMask = 1<<min(used, mixBits) - 1
	}
	if m.gpus {
		m.gpuFields = m.lay(gpus, &used)
	}
	if used > mixBits {
		return false
	}
	s.most /= 2 // the other half is for choosing one resource after another
	s.budget = s.most
	s.offerBelow(s.root)
	return s.budget >= 0
}

// supply is the supply of a resource in a part of the tree.
type supply struct{ held, most int }

// offerBelow lists the possible devices of every card and group below a place, and the minimum of each place.
// It returns the supply of the place by resource, GPUs before VFs.
func (s *Solver) offerBelow(n *Place) []supply {
	m := &s.mixing
	n.mixed = new(mixed)
	has := make([]supply, len(m.gpuFields)+len(m.vfFields))
	for _, child := range n.Children {
		for i, of := range s.offerBelow(child) {
			has[i].held += of.held
			has[i].most += of.most
		}
		n.floors = append(n.floors, m.floor(has))
	}
	switch {
	case n.Kind == Card && m.gpus:
		add(has, n.Pools)
		n.offers = s.offersOf(n.Pools, m.gpuFields)
		n.offers = m.reaching(n.offers, m.floor(has))
	case n.Kind == Group && m.vfs:
		for _, f := range n.PFs {
			add(has[len(m.gpuFields):], f.Pools)
		}
		s.stage(n)
		n.offers = m.reaching(n.offers, m.floor(has)&m.vfMask)
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

// offersOf lists all ways to take devices from pools. It returns nil if their number exceeds the step limit.
func (s *Solver) offersOf(pools []Pool, fields []field) []offer {
	offers := []offer{{}}
	for _, l := range pools {
		f := fields[l.Resource]
		high := min(l.Most, f.wanted)
		ways := len(offers) * (high - l.Held + 1)
		if s.budget -= stepsPerMixed * ways; s.budget < 0 {
			return nil
		}
		more := make([]offer, 0, ways)
		for _, o := range offers {
			for n := l.Held; n <= high; n++ {
				more = append(more, offer{count: o.count + n, mix: o.mix + mix(n)<<f.shift})
			}
		}
		offers = more
	}
	inOfferOrder(offers)
	return offers
}

func inOfferOrder(offers []offer) {
	slices.SortFunc(offers, func(a, b offer) int {
		return cmp.Or(cmp.Compare(a.count, b.count), cmp.Compare(a.mix, b.mix))
	})
}

// stage finds for one PF of a group after another the cheapest way to give each mix of VFs. Of ways with the
// same cost it takes fewer VFs from the later PF.
func (s *Solver) stage(n *Place) {
	n.offers = []offer{{}}
	for _, f := range n.PFs {
		gives := s.offersOf(f.Pools, s.mixing.vfFields)
		if s.budget -= stepsPerMixed * len(gives) * len(n.offers); s.budget < 0 {
			return
		}
		index := map[mix]int{}
		var stage []offer
		for _, last := range gives {
			for i, before := range n.offers {
				o := offer{
					count:  before.count + last.count,
					mix:    before.mix + last.mix,
					cost:   before.cost,
					last:   last.mix,
					before: i,
				}
				if !s.mixing.fits(o.mix) {
					continue
				}
				o.cost.shared += int64(last.count * (last.count - 1) / 2)
				o.cost.load += int64(last.count * f.Load)
				if k, known := index[o.mix]; !known {
					index[o.mix] = len(stage)
					stage = append(stage, o)
				} else if o.cost.compare(stage[k].cost) < 0 {
					stage[k] = o
				}
			}
		}
		inOfferOrder(stage)
		n.stages = append(n.stages, stage)
		n.offers = stage
	}
}

// stepsPerMixed is the cost of combining two entries of several resources, in steps.
const stepsPerMixed = 12
