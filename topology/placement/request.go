package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// side is a half made ready: no device twice, held ones first, each part in ascending order.
type side struct {
	count   int // at least the number of held devices
	held    int // how many of devices are held
	devices []Device
	ids     map[string]bool
}

// ready sorts a half, so that nothing after it depends on the order of the lists. Of devices with one ID a held one is kept, else the
// one with the lowest address.
func (h Half) ready(what string) (side, error) {
	held, free := ordered(h.Held), ordered(h.Free)
	n := len(held) + len(free)
	s := side{devices: make([]Device, 0, n), ids: make(map[string]bool, n)}
	for i, d := range slices.Concat(held, free) {
		if s.ids[d.ID] {
			continue
		}
		s.ids[d.ID] = true
		s.devices = append(s.devices, d)
		if i < len(held) {
			s.held++
		}
	}
	s.count = max(h.Count, s.held)
	if s.count > len(s.devices) {
		return side{}, fmt.Errorf("choose %d %s: %d held and %d free", s.count, what, s.held, len(s.devices)-s.held)
	}
	return s, nil
}

// ordered returns a sorted copy.
func ordered(devices []Device) []Device {
	sorted := slices.Clone(devices)
	slices.SortFunc(sorted, compareDevices)
	return sorted
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
