package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology/placement/solver"
)

// side is all that is asked of a kind made ready: no device twice; held ones first, resource by resource,
// then those that may be chosen, resource by resource, then spare ones, then those of other containers; each
// part in ascending order.
type side struct {
	wanted []int // by resource, at least the number of its held devices
	count  int   // the sum of them
	// where the held devices of each resource end, then where those that may be chosen do, then where the spare
	// ones do
	ends    []int
	devices []Device
}

// ready sorts halves, so that nothing after it depends on the order of the lists. Of devices with one ID a
// held one is kept, else one that may be chosen, else the one with the lowest address.
func ready(halves []Half, spare, taken []Device, what string) (side, error) {
	if len(halves) > 1 {
		halves = inOneOrder(halves)
	}
	n := len(spare) + len(taken)
	for _, h := range halves {
		n += len(h.Held) + len(h.Free)
	}
	numbers := make([]int, 3*len(halves)+1)
	s := side{
		devices: make([]Device, 0, n), wanted: numbers[:len(halves)], ends: numbers[len(halves):len(halves)],
	}
	seen := make(map[string]struct{}, n)
	for _, h := range halves {
		s.ends = append(s.ends, s.add(h.Held, seen))
	}
	for i, h := range halves {
		held, before := s.held(i), len(s.devices)
		s.ends = append(s.ends, s.add(h.Free, seen))
		s.wanted[i] = max(h.Count, held)
		s.count += s.wanted[i]
		if free := len(s.devices) - before; s.wanted[i] > held+free {
			return side{}, fmt.Errorf("choose %d %s: %d held and %d free", s.wanted[i], what, held, free)
		}
	}
	s.ends = append(s.ends, s.add(spare, seen))
	s.add(taken, seen)
	return s, nil
}

// inOneOrder sorts halves by the lowest device of each. Those that nothing is wanted of come last.
func inOneOrder(halves []Half) []Half {
	type keyed struct {
		Half
		lowest Device
	}
	all := make([]keyed, len(halves))
	for i, h := range halves {
		all[i].Half = h
		if devices := slices.Concat(h.Held, h.Free); len(devices) > 0 {
			all[i].lowest = slices.MinFunc(devices, compareDevices)
		}
	}
	slices.SortFunc(all, func(a, b keyed) int {
		return cmp.Or(compareDevices(a.lowest, b.lowest), cmp.Compare(a.Count, b.Count),
			cmp.Compare(len(a.Held), len(b.Held)))
	})
	sorted := make([]Half, len(all))
	for i, k := range all {
		sorted[i] = k.Half
	}
	return sorted
}

// held is how many devices of a resource are held.
func (s *side) held(resource int) int {
	if resource == 0 {
		return s.ends[0]
	}
	return s.ends[resource] - s.ends[resource-1]
}

// free is how many devices of a resource may be chosen.
func (s *side) free(resource int) int {
	k := len(s.wanted) + resource
	return s.ends[k] - s.ends[k-1]
}

// resources are what is asked of each resource where devices of several are wanted, nil elsewhere.
func (s *side) resources() []solver.Resource {
	several := 0
	for _, wanted := range s.wanted {
		several += min(wanted, 1)
	}
	if several < 2 {
		return nil
	}
	resources := make([]solver.Resource, len(s.wanted))
	for i, wanted := range s.wanted {
		resources[i] = solver.Resource{Wanted: wanted, Most: s.held(i) + s.free(i)}
	}
	return resources
}

// halves are what was made ready.
func (s *side) halves() (halves []Half, spare, taken []Device) {
	from := 0
	next := func(i int) []Device {
		part := s.devices[from:s.ends[i]]
		from = s.ends[i]
		return part
	}
	for i, wanted := range s.wanted {
		halves = append(halves, Half{Count: wanted, Held: next(i)})
	}
	for i := range halves {
		halves[i].Free = next(len(halves) + i)
	}
	spare = next(2 * len(halves))
	return halves, spare, s.devices[from:]
}

// with is the request after it was made ready.
func (r Request) with(gpus, vfs *side) Request {
	r.GPUs, r.Spare.GPUs, r.Taken.GPUs = gpus.halves()
	r.VFs, r.Spare.VFs, r.Taken.VFs = vfs.halves()
	return r
}

// add appends a part in ascending order, without the devices that have been seen, and returns how many
// devices there are now.
func (s *side) add(part []Device, seen map[string]struct{}) int {
	from := len(s.devices)
	s.devices = append(s.devices, part...)
	part = s.devices[from:]
	slices.SortFunc(part, compareDevices)
	kept := part[:0]
	for _, d := range part {
		before := len(seen)
		if seen[d.ID] = struct{}{}; len(seen) > before {
			kept = append(kept, d)
		}
	}
	s.devices = s.devices[:from+len(kept)]
	return len(s.devices)
}

// at tells the resource of the i-th device and counts it. Where none is wanted, what may be chosen is as good
// as spare.
func (s *side) at(i int) (resource int, t solver.Tally) {
	k := 0
	for k < len(s.ends) && i >= s.ends[k] {
		k++
	}
	switch resource = k - len(s.wanted); {
	case k < len(s.wanted):
		return k, solver.Tally{Held: 1, Most: 1}
	case resource < len(s.wanted) && s.wanted[resource] > 0:
		return resource, solver.Tally{Most: 1}
	case k < len(s.ends):
		return 0, solver.Tally{Spare: 1}
	default:
		return 0, solver.Tally{Taken: 1}
	}
}

// joined appends the i-th device of a list to some of its devices. Where those are the ones right before it,
// nothing is copied.
func joined(some, all []Device, i int) []Device {
	switch n := len(some); {
	case n == 0:
		return all[i : i+1 : i+1]
	case n <= i && &some[0] == &all[i-n]:
		return all[i-n : i+1 : i+1]
	default:
		return append(some, all[i])
	}
}

// compareDevices orders by address, then by ID: partitions of a card share its address.
func compareDevices(a, b Device) int {
	if c := a.Address.Compare(b.Address); c != 0 {
		return c
	}
	return compareNatural(a.ID, b.ID)
}

// compareNatural orders strings with the numbers in them as numbers, xcp_2 before xcp_10; equal only for
// equal strings.
func compareNatural(a, b string) int {
	whole := strings.Compare(a, b)
	if whole == 0 {
		return 0
	}
	for a != "" && b != "" {
		da, db := digits(a), digits(b)
		if da == 0 || db == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		na, nb := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
		if c := cmp.Or(cmp.Compare(len(na), len(nb)), strings.Compare(na, nb)); c != 0 {
			return c
		}
		a, b = a[da:], b[db:]
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), whole)
}

// digits counts the decimal digits that a string begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}
