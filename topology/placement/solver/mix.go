// SPDX-License-Identifier: Apache-2.0

package solver

import (
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

// Resource is the request for one of several resources of a kind.
type Resource struct {
	Wanted int
	Most   int // maximum number of devices
}

// newMixing assigns the fields for a request and reports whether the bits suffice. A kind with at most one
// requested resource has no fields.
func newMixing(gpus, vfs []Resource) (m mixing, ok bool) {
	m.gpus, m.vfs = len(gpus) > 0, len(vfs) > 0
	used := 0
	m.vfFields = m.lay(vfs, &used)
	m.vfMask = 1<<min(used, mixBits) - 1
	m.gpuFields = m.lay(gpus, &used)
	return m, used <= mixBits
}

func (m *mixing) any() bool { return m.gpus || m.vfs }

// lay assigns the fields of a kind, the first resource in the highest bits.
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

// fits reports whether no resource exceeds the requested number.
func (m *mixing) fits(x mix) bool { return (x+m.slack)&m.guards == 0 }

// reaches reports whether x has at least floor devices of each resource.
func (m *mixing) reaches(x, floor mix) bool { return ((x|m.guards)-floor)&m.guards == m.guards }

// taken returns the number of devices of a resource in a mix.
func (f field) taken(x mix) int {
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
	cost   FillCost // of VFs
	last   mix      // of a group: the devices of the last PF
	before int      // of a group: the devices of the previous PFs, as an index of their stage
	ofNIC  int      // of a group: the VFs of the NIC that the next PF belongs to
}
