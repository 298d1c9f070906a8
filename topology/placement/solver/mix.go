package solver

import (
	"math/bits"
	"slices"
)

// mix counts the devices of every resource in one number, a field for each, so that two add up at once. The
// bit above each field, its guard, is free for the carry. Where a kind has one resource only, its devices are
// counted as such, and it has no fields.
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
	// what must be added to each field for its guard to tell that there are more than wanted
	slack  mix
	wanted mix
	vfMask mix // the fields of VFs
}

// mixBits bounds the fields and their guards.
const mixBits = 63

// Resource is what is asked of one resource of a kind of which several are.
type Resource struct {
	Wanted int
	Most   int // devices in all that may be taken
}

func (m *mixing) any() bool { return m.gpus || m.vfs }

// lay makes the fields of a kind, the first resource in the highest.
func (m *mixing) lay(of []Resource, used *int) []field {
	fields := make([]field, len(of))
	for i, r := range slices.Backward(of) {
		width := bits.Len(uint(r.Wanted))
		fields[i] = field{shift: *used, wanted: r.Wanted, most: r.Most}
		if *used += width + 1; *used <= mixBits {
			guard := mix(1) << (fields[i].shift + width)
			m.guards |= guard
			m.wanted |= mix(r.Wanted) << fields[i].shift
			m.slack |= guard - mix(1+r.Wanted)<<fields[i].shift
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
	cost   FillCost // of VFs
	last   mix      // of a group: what comes from the last PF
	before int      // of a group: what comes from those before, as an index of their stage
}
