package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// side is a half made ready: no device twice, held ones first, then those that may be chosen, then spare ones, each part in
// ascending order.
type side struct {
	count   int // at least the number of held devices
	held    int // how many of devices are held
	usable  int // how many of devices are held or may be chosen
	devices []Device
}

// ready sorts a half, so that nothing after it depends on the order of the lists. Of devices with one ID a held one is kept, else one
// that may be chosen, else the one with the lowest address.
func (h Half) ready(spare []Device, what string) (side, error) {
	n := len(h.Held) + len(h.Free) + len(spare)
	s := side{devices: make([]Device, 0, n)}
	seen := make(map[string]struct{}, n)
	s.held = s.add(h.Held, seen)
	s.usable = s.add(h.Free, seen)
	s.count = max(h.Count, s.held)
	if s.count > s.usable {
		return side{}, fmt.Errorf("choose %d %s: %d held and %d free", s.count, what, s.held, s.usable-s.held)
	}
	s.add(spare, seen)
	return s, nil
}

// add appends a part in ascending order, without the devices that have been seen, and returns how many devices there are now.
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

// tally counts the i-th device. Where none is wanted, what may be chosen is as good as spare.
func (s *side) tally(i int) tally {
	switch {
	case i < s.held:
		return tally{held: 1, most: 1}
	case i < s.usable && s.count > 0:
		return tally{most: 1}
	default:
		return tally{spare: 1}
	}
}

// joined appends the i-th device of a list to some of its devices. Where those are the ones right before it, nothing is copied.
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

// compareNatural orders strings with the numbers in them as numbers, xcp_2 before xcp_10; equal only for equal strings.
func compareNatural(a, b string) int {
	whole := strings.Compare(a, b)
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
