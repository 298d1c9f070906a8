package placement

import (
	"math/bits"
	"slices"
)

// mix counts the devices of every resource in one number, a field for each, so that two add up at once. The bit above each field, its
// guard, is free for the carry. Where a kind has one resource only, its devices are counted as such, and it has no fields.
type mix uint64

// field is where a mix has the number of a resource.
type field struct {
	shift  int
	wanted int
	most   int // devices in all that may be taken
}

// mixing says how devices are mixed.
type mixing struct {
	gpus, vfs           bool    // whether the kind has several resources
	gpuFields, vfFields []field // by resource
	guards              mix     // all guards
	slack               mix     // what must be added to each field for its guard to tell that there are more than wanted
	wanted              mix
	vfMask              mix // the fields of VFs
}

// mixBits bounds the fields and their guards.
const mixBits = 63

// mix lays out the fields for what is asked and lists what every card and every group can give. It reports whether there was
// room and time for that.
func (s *solver) mix(gpus, vfs *side) bool {
	m := &s.mixing
	m.gpus, m.vfs = gpus.several(), vfs.several()
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
	s.most /= 2 // the other half is for settling one resource after the other
	s.budget = s.most
	s.offerBelow(s.root)
	return s.budget >= 0
}

func (m *mixing) any() bool { return m.gpus || m.vfs }

// several reports whether devices of more than one resource are wanted.
func (s *side) several() bool {
	n := 0
	for _, wanted := range s.wanted {
		n += min(wanted, 1)
	}
	return n > 1
}

// lay makes the fields of a kind, the first resource in the highest.
func (m *mixing) lay(of *side, used *int) []field {
	fields := make([]field, len(of.wanted))
	for i, wanted := range slices.Backward(of.wanted) {
		width := bits.Len(uint(wanted))
		fields[i] = field{shift: *used, wanted: wanted, most: of.held(i) + of.free(i)}
		if *used += width + 1; *used <= mixBits {
			guard := mix(1) << (fields[i].shift + width)
			m.guards |= guard
			m.wanted |= mix(wanted) << fields[i].shift
			m.slack |= guard - mix(1+wanted)<<fields[i].shift
		}
	}
	return fields
}

// fits reports whether there are at most as many of each resource as wanted.
func (m *mixing) fits(x mix) bool { return (x+m.slack)&m.guards == 0 }

// reaches reports whether there are at least as many of each resource.
func (m *mixing) reaches(x, floor mix) bool { return ((x|m.guards)-floor)&m.guards == m.guards }

// taken is how many devices of a resource there are in a mix.
func (f field) taken(x mix) int {
	return int(x >> f.shift & (1<<bits.Len(uint(f.wanted)) - 1))
}

// takeGPUs counts the GPUs that are marked in the pools of a card.
func (m *mixing) takeGPUs(card *place) {
	for i := range card.pools {
		card.pools[i].taken = m.gpuFields[card.pools[i].resource].taken(card.chosen.mix)
	}
}

// takeVFs counts the VFs that are marked in the pools of a group.
func (m *mixing) takeVFs(group *place) {
	if len(group.pfs) == 0 {
		return
	}
	wanted := group.chosen.mix & m.vfMask
	o := group.offers[slices.IndexFunc(group.offers, func(o offer) bool { return o.mix == wanted })]
	for i, f := range slices.Backward(group.pfs) {
		f.taken = 0
		for k := range f.pools {
			l := &f.pools[k]
			l.taken = m.vfFields[l.resource].taken(o.last)
			f.taken += l.taken
		}
		if i > 0 {
			o = group.stages[i-1][o.before]
		}
	}
}
