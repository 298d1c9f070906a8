// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/topology/placement/solver"
)

// side is the normalized request for one kind. Its devices are unique and in this order: held devices by
// resource, devices that may be chosen by resource, spare devices, devices of other containers; each part
// ascends.
type side struct {
	wanted  []int // by resource, at least the number of its held devices
	count   int   // sum of wanted
	devices []Device
	parts   []part // the part of each device
}

// part is the role of a device: its resource and how it counts.
type part struct {
	resource int
	tally    solver.Tally
}

// normalize normalizes halves, so that later steps do not depend on the order of the lists. Of several
// devices with one ID it keeps a held device, otherwise one that may be chosen, otherwise the device with the
// lowest address. If no device of a resource is requested, its free devices count as spare.
func normalize(halves []Half, spare, taken []Device, what string) (side, error) {
	if len(halves) > 1 {
		halves = sortHalves(halves)
	}
	n := len(spare) + len(taken)
	for _, h := range halves {
		n += len(h.Held) + len(h.Free)
	}
	s := side{devices: make([]Device, 0, n), parts: make([]part, 0, n), wanted: make([]int, len(halves))}
	seen := make(map[string]struct{}, n)
	for i, h := range halves {
		s.wanted[i] = s.add(h.Held, part{i, solver.Tally{Held: 1, Most: 1}}, seen)
	}
	for i, h := range halves {
		held, p := s.wanted[i], part{i, solver.Tally{Most: 1}}
		s.wanted[i] = max(h.Count, held)
		s.count += s.wanted[i]
		if s.wanted[i] == 0 {
			p = part{0, solver.Tally{Spare: 1}}
		}
		if free := s.add(h.Free, p, seen); s.wanted[i] > held+free {
			return side{}, fmt.Errorf("choose %d %s: %d held and %d free", s.wanted[i], what, held, free)
		}
	}
	s.add(spare, part{0, solver.Tally{Spare: 1}}, seen)
	s.add(taken, part{0, solver.Tally{Taken: 1}}, seen)
	return s, nil
}

// sortHalves sorts halves by their lowest device. Halves without requested devices come last.
func sortHalves(halves []Half) []Half {
	type keyedHalf struct {
		Half
		lowest Device
	}
	all := make([]keyedHalf, len(halves))
	for i, h := range halves {
		all[i].Half = h
		if devices := slices.Concat(h.Held, h.Free); len(devices) > 0 {
			all[i].lowest = slices.MinFunc(devices, compareDevices)
		}
	}
	slices.SortFunc(all, func(a, b keyedHalf) int {
		return cmp.Or(compareDevices(a.lowest, b.lowest), cmp.Compare(a.Count, b.Count),
			cmp.Compare(len(a.Held), len(b.Held)))
	})
	sorted := make([]Half, len(all))
	for i, k := range all {
		sorted[i] = k.Half
	}
	return sorted
}

// resources returns the requested resources if devices of several are requested, otherwise nil.
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
		resources[i].Wanted = wanted
	}
	for _, p := range s.parts {
		resources[p.resource].Most += p.tally.Most
	}
	return resources
}

// halves returns the normalized halves, spare devices and taken devices.
func (s *side) halves() (halves []Half, spare, taken []Device) {
	for _, wanted := range s.wanted {
		halves = append(halves, Half{Count: wanted})
	}
	for i, p := range s.parts {
		list := &taken
		switch {
		case p.tally.Held > 0:
			list = &halves[p.resource].Held
		case p.tally.Most > 0:
			list = &halves[p.resource].Free
		case p.tally.Spare > 0:
			list = &spare
		}
		*list = append(*list, s.devices[i])
	}
	return halves, spare, taken
}

// with returns the normalized request.
func (r Request) with(gpus, vfs *side) Request {
	r.GPUs, r.Spare.GPUs, r.Taken.GPUs = gpus.halves()
	r.VFs, r.Spare.VFs, r.Taken.VFs = vfs.halves()
	return r
}

// add appends a part in ascending order without devices seen before, and returns the number of appended
// devices.
func (s *side) add(list []Device, p part, seen map[string]struct{}) int {
	from := len(s.devices)
	s.devices = append(s.devices, list...)
	list = s.devices[from:]
	slices.SortFunc(list, compareDevices)
	kept := list[:0]
	for _, d := range list {
		before := len(seen)
		if seen[d.ID] = struct{}{}; len(seen) > before {
			kept = append(kept, d)
			s.parts = append(s.parts, p)
		}
	}
	s.devices = s.devices[:from+len(kept)]
	return len(kept)
}

// appendDevice appends the i-th device of a list to some of its devices. If those are directly before the
// i-th device it copies nothing.
func appendDevice(some, all []Device, i int) []Device {
	switch n := len(some); {
	case n == 0:
		return all[i : i+1 : i+1]
	case n <= i && &some[0] == &all[i-n]:
		return all[i-n : i+1 : i+1]
	default:
		return append(some, all[i])
	}
}
