package placement

import (
	"cmp"
	"slices"
)

// mixed is what a place has where there are several resources of a kind.
type mixed struct {
	floors []mix     // the fewest of each resource that have to come from its first 1, 2, 3 … children
	offers []offer   // of a card: the GPUs that it can give; of a group: the VFs
	stages [][]offer // of a group, by PF: the VFs that it and those before it can give
}

// offer is one way to give devices of several resources.
type offer struct {
	count  int
	mix    mix
	cost   fillCost // of VFs
	last   mix      // of a group: what comes from the last PF
	before int      // of a group: what comes from those before, as an index of their stage
}

// supply is what a part of the tree has of a resource.
type supply struct{ held, most int }

// offerBelow lists what every card and group below a place can give, and what the places must. It returns what the place has, by
// resource, GPUs before VFs.
func (s *solver) offerBelow(n *place) []supply {
	m := &s.mixing
	n.mixed = new(mixed)
	has := make([]supply, len(m.gpuFields)+len(m.vfFields))
	for _, child := range n.children {
		for i, of := range s.offerBelow(child) {
			has[i].held += of.held
			has[i].most += of.most
		}
		n.floors = append(n.floors, m.floor(has))
	}
	switch {
	case n.kind == cardPlace && m.gpus:
		add(has, n.pools)
		n.offers = s.offersOf(n.pools, m.gpuFields)
		n.offers = m.reaching(n.offers, m.floor(has))
	case n.kind == groupPlace && m.vfs:
		for _, f := range n.pfs {
			add(has[len(m.gpuFields):], f.pools)
		}
		s.stage(n)
		n.offers = m.reaching(n.offers, m.floor(has)&m.vfMask)
	}
	return has
}

func add(has []supply, pools []pool) {
	for _, l := range pools {
		has[l.resource].held += l.held
		has[l.resource].most += len(l.devices)
	}
}

// floor is the fewest of each resource that have to come from a part of the tree: those held there, and those that the rest does not have.
func (m *mixing) floor(has []supply) mix {
	sum := mix(0)
	for i, f := range slices.Concat(m.gpuFields, m.vfFields) {
		sum += mix(max(has[i].held, f.wanted-(f.most-has[i].most))) << f.shift
	}
	return sum
}

// reaching keeps the offers that have enough of each resource.
func (m *mixing) reaching(offers []offer, floor mix) []offer {
	return slices.DeleteFunc(slices.Clone(offers), func(o offer) bool { return !m.reaches(o.mix, floor) })
}

// offersOf lists all ways to take devices from pools, nothing where there are more of them than there is time for.
func (s *solver) offersOf(pools []pool, fields []field) []offer {
	offers := []offer{{}}
	for _, l := range pools {
		f := fields[l.resource]
		high := min(len(l.devices), f.wanted)
		ways := len(offers) * (high - l.held + 1)
		if s.budget -= stepsPerMixed * ways; s.budget < 0 {
			return nil
		}
		more := make([]offer, 0, ways)
		for _, o := range offers {
			for n := l.held; n <= high; n++ {
				more = append(more, offer{count: o.count + n, mix: o.mix + mix(n)<<f.shift})
			}
		}
		offers = more
	}
	inOfferOrder(offers)
	return offers
}

func inOfferOrder(offers []offer) {
	slices.SortFunc(offers, func(a, b offer) int { return cmp.Or(cmp.Compare(a.count, b.count), cmp.Compare(a.mix, b.mix)) })
}

// stage finds for the PFs of a group, one after the other, the cheapest way to give each mix of VFs. Of ways that cost the same
// it takes less from the later PF.
func (s *solver) stage(n *place) {
	n.offers = []offer{{}}
	for _, f := range n.pfs {
		gives := s.offersOf(f.pools, s.mixing.vfFields)
		if s.budget -= stepsPerMixed * len(gives) * len(n.offers); s.budget < 0 {
			return
		}
		index := map[mix]int{}
		var stage []offer
		for _, last := range gives {
			for i, before := range n.offers {
				o := offer{count: before.count + last.count, mix: before.mix + last.mix, cost: before.cost, last: last.mix, before: i}
				if !s.mixing.fits(o.mix) {
					continue
				}
				o.cost.shared += int64(last.count * (last.count - 1) / 2)
				o.cost.load += int64(last.count * f.load)
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

// stepsPerMixed is what it takes to combine two entries of several resources, in steps.
const stepsPerMixed = 12

func (c fillCost) compare(d fillCost) int {
	return cmp.Or(cmp.Compare(c.shared, d.shared), cmp.Compare(c.load, d.load))
}
