// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// longRequest is the number of listed devices above which a request is compacted. A shared GPU or HCA is
// listed once per replica.
const longRequest = 512

// compactRequest is a placement.Request in which free, spare and taken devices are counted by PCI function
// and health: placement distinguishes further devices of a function only by ID. Held and chosen devices keep
// their IDs.
type compactRequest struct {
	gpus, vfs compactKind
	links     []topology.Link
}

// compactKind is the request for devices of one kind.
type compactKind struct {
	halves       []compactHalf
	spare, taken []functionCount
}

// compactHalf is a placement.Half with its free devices divided into chosen and other devices.
type compactHalf struct {
	count  int
	held   []placement.Device
	chosen []placement.Device
	others []functionCount
}

// functionCount is the number of devices of a PCI function that differ only in the ID.
type functionCount struct {
	device placement.Device // without ID
	count  uint32
}

// isLong reports whether a request lists more than longRequest devices.
func isLong(r placement.Request) bool {
	n := len(r.Spare.GPUs) + len(r.Spare.VFs) + len(r.Taken.GPUs) + len(r.Taken.VFs)
	for _, h := range slices.Concat(r.GPUs, r.VFs) {
		n += len(h.Held) + len(h.Free)
	}
	return n > longRequest
}

// newCompactRequest compacts a request and its choice.
func newCompactRequest(r placement.Request, c placement.Choice) *compactRequest {
	return &compactRequest{
		gpus:  newCompactKind(r.GPUs, r.Spare.GPUs, r.Taken.GPUs, c.GPUs),
		vfs:   newCompactKind(r.VFs, r.Spare.VFs, r.Taken.VFs, c.VFs),
		links: r.Links,
	}
}

// newCompactKind counts a device of several lists only in the list that placement uses.
func newCompactKind(halves []placement.Half, spare, taken, chosen []placement.Device) compactKind {
	s := compactKind{halves: make([]compactHalf, 0, len(halves))}
	counted := make(map[string]bool, len(spare)+len(taken))
	for _, h := range halves {
		s.halves = append(s.halves, compactHalf{count: h.Count, held: slices.Clone(h.Held)})
		for _, d := range h.Held {
			counted[d.ID] = true
		}
	}
	isChosen := make(map[string]bool, len(chosen))
	for _, d := range chosen {
		isChosen[d.ID] = true
	}
	for i, h := range halves {
		free := newCounter(counted)
		for _, d := range h.Free {
			if isChosen[d.ID] && !counted[d.ID] {
				counted[d.ID] = true
				s.halves[i].chosen = append(s.halves[i].chosen, d)
			}
			free.add(d)
		}
		s.halves[i].others = free.all()
	}
	s.spare = newCounter(counted).addAll(spare)
	s.taken = newCounter(counted).addAll(taken)
	return s
}

// counter counts devices by PCI function.
type counter struct {
	counted map[string]bool             // device IDs, shared with the counters of other lists
	counts  map[placement.Device]uint32 // by device without ID
}

func newCounter(counted map[string]bool) *counter {
	return &counter{counted, map[placement.Device]uint32{}}
}

func (c *counter) add(d placement.Device) {
	if !c.counted[d.ID] {
		c.counted[d.ID] = true
		d.ID = ""
		c.counts[d]++
	}
}

func (c *counter) addAll(devices []placement.Device) []functionCount {
	for _, d := range devices {
		c.add(d)
	}
	return c.all()
}

// all returns the counts by address.
func (c *counter) all() []functionCount {
	list := make([]functionCount, 0, len(c.counts))
	for d, count := range c.counts {
		list = append(list, functionCount{d, count})
	}
	slices.SortFunc(list, func(a, b functionCount) int {
		return cmp.Or(a.device.Address.Compare(b.device.Address), goodFirst(a.device, b.device))
	})
	return list
}

func goodFirst(a, b placement.Device) int {
	switch {
	case a.Degraded == b.Degraded:
		return 0
	case b.Degraded:
		return -1
	default:
		return 1
	}
}

// expand returns a request with the same placement as the compacted request. Counted devices get made-up IDs.
func (c *compactRequest) expand() placement.Request {
	r := placement.Request{Links: c.links}
	r.GPUs, r.Spare.GPUs, r.Taken.GPUs = c.gpus.expand()
	r.VFs, r.Spare.VFs, r.Taken.VFs = c.vfs.expand()
	return r
}

func (s *compactKind) expand() (halves []placement.Half, spare, taken []placement.Device) {
	n := 0
	devices := func(all []functionCount) (list []placement.Device) {
		for _, f := range all {
			for range f.count {
				n++
				d := f.device
				d.ID = "\x00" + strconv.Itoa(n) // NUL distinguishes the ID from device IDs
				list = append(list, d)
			}
		}
		return list
	}
	for _, h := range s.halves {
		halves = append(halves, placement.Half{
			Count: h.count, Held: h.held, Free: append(slices.Clone(h.chosen), devices(h.others)...),
		})
	}
	return halves, devices(s.spare), devices(s.taken)
}
