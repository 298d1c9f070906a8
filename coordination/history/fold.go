// SPDX-License-Identifier: Apache-2.0

package history

import (
	"slices"
	"strconv"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// longRequest is how many devices the lists of a request may have to be kept as they are. A shared GPU or HCA
// is in them once for each container that may share it.
const longRequest = 512

// folded is a request with long lists: devices are counted by function, for placement tells those of one
// apart by their names alone. Those that were chosen or held have their names still.
type folded struct {
	gpus, vfs side
	links     []topology.Link
}

// side is what was asked of a kind.
type side struct {
	halves       []half
	spare, taken []functions
}

// half is what was asked of one resource.
type half struct {
	count  int
	held   []placement.Device
	chosen []placement.Device // of those that could be chosen
	others []functions        // likewise
}

// functions are devices of one function.
type functions struct {
	address topology.Address
	count   uint32
}

// long reports whether a request has long lists.
func long(r placement.Request) bool {
	n := len(r.Spare.GPUs) + len(r.Spare.VFs) + len(r.Taken.GPUs) + len(r.Taken.VFs)
	for _, h := range slices.Concat(r.GPUs, r.VFs) {
		n += len(h.Held) + len(h.Free)
	}
	return n > longRequest
}

// fold counts the devices of a request.
func fold(r placement.Request, c placement.Choice) *folded {
	return &folded{
		gpus:  foldSide(r.GPUs, r.Spare.GPUs, r.Taken.GPUs, c.GPUs),
		vfs:   foldSide(r.VFs, r.Spare.VFs, r.Taken.VFs, c.VFs),
		links: r.Links,
	}
}

// foldSide counts a device that is in several lists in the one in which it counts for placement.
func foldSide(halves []placement.Half, spare, taken, chosen []placement.Device) side {
	s := side{halves: make([]half, 0, len(halves))}
	seen := make(map[string]bool, len(spare)+len(taken))
	for _, h := range halves {
		s.halves = append(s.halves, half{count: h.Count, held: slices.Clone(h.Held)})
		for _, d := range h.Held {
			seen[d.ID] = true
		}
	}
	isChosen := make(map[string]bool, len(chosen))
	for _, d := range chosen {
		isChosen[d.ID] = true
	}
	for i, h := range halves {
		free := newCounter(seen)
		for _, d := range h.Free {
			if isChosen[d.ID] && !seen[d.ID] {
				seen[d.ID] = true
				s.halves[i].chosen = append(s.halves[i].chosen, d)
			}
			free.add(d)
		}
		s.halves[i].others = free.all()
	}
	s.spare = newCounter(seen).addAll(spare)
	s.taken = newCounter(seen).addAll(taken)
	return s
}

// counter counts devices by function.
type counter struct {
	seen   map[string]bool // those that were counted elsewhere
	counts map[topology.Address]uint32
}

func newCounter(seen map[string]bool) *counter { return &counter{seen, map[topology.Address]uint32{}} }

func (c *counter) add(d placement.Device) {
	if !c.seen[d.ID] {
		c.seen[d.ID] = true
		c.counts[d.Address]++
	}
}

func (c *counter) addAll(devices []placement.Device) []functions {
	for _, d := range devices {
		c.add(d)
	}
	return c.all()
}

func (c *counter) all() []functions {
	list := make([]functions, 0, len(c.counts))
	for address, count := range c.counts {
		list = append(list, functions{address, count})
	}
	slices.SortFunc(list, func(a, b functions) int { return a.address.Compare(b.address) })
	return list
}

// unfold is a request that placement answers as the one that was folded.
func (f *folded) unfold() placement.Request {
	r := placement.Request{Links: f.links}
	r.GPUs, r.Spare.GPUs, r.Taken.GPUs = f.gpus.unfold()
	r.VFs, r.Spare.VFs, r.Taken.VFs = f.vfs.unfold()
	return r
}

func (s *side) unfold() (halves []placement.Half, spare, taken []placement.Device) {
	n := 0
	devices := func(all []functions) (list []placement.Device) {
		for _, f := range all {
			for range f.count {
				n++ // no device has such a name: the kubelet's are text
				list = append(list, placement.Device{ID: "\x00" + strconv.Itoa(n), Address: f.address})
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

// Sizes in memory.
const (
	deviceBytes   = int(unsafe.Sizeof(placement.Device{}))
	functionBytes = int(unsafe.Sizeof(functions{}))
	halfBytes     = int(unsafe.Sizeof(half{}))
	pairBytes     = int(unsafe.Sizeof(placement.Pair{}))
	linkBytes     = int(unsafe.Sizeof(topology.Link{}))
	stringBytes   = int(unsafe.Sizeof(""))
	// of what is told of a device or a function in a tree, with the maps
	treeDeviceBytes = 1 << 10
	// of a decision, its copy and what is told of it, without lists
	decisionBytes = 4 << 10
)

// bytes is about what a decision takes, its tree aside.
func (e *Decision) bytes() int {
	n := decisionBytes + stringsBytes(e.MustInclude) + stringsBytes(e.Chosen) + stringsBytes(e.Allocated)
	for _, ids := range e.Planned {
		n += stringsBytes(ids)
	}
	n += devicesBytes(e.Choice.GPUs) + devicesBytes(e.Choice.VFs) + 2*len(e.Choice.Pairs)*pairBytes
	n += len(e.Request.Links) * linkBytes
	for _, h := range slices.Concat(e.Request.GPUs, e.Request.VFs) {
		n += devicesBytes(h.Held) + devicesBytes(h.Free)
	}
	for _, d := range []placement.Devices{e.Request.Spare, e.Request.Taken} {
		n += devicesBytes(d.GPUs) + devicesBytes(d.VFs)
	}
	if e.folded != nil {
		n += len(e.folded.links)*linkBytes + e.folded.gpus.bytes() + e.folded.vfs.bytes()
	}
	return n
}

func (s *side) bytes() int {
	n := (len(s.spare) + len(s.taken)) * functionBytes
	for _, h := range s.halves {
		n += halfBytes + devicesBytes(h.held) + devicesBytes(h.chosen) + len(h.others)*functionBytes
	}
	return n
}

// devicesBytes counts the names too: nobody else may have them any more.
func devicesBytes(devices []placement.Device) int {
	n := len(devices) * deviceBytes
	for _, d := range devices {
		n += len(d.ID)
	}
	return n
}

func stringsBytes(list []string) int {
	n := len(list) * stringBytes
	for _, s := range list {
		n += len(s)
	}
	return n
}

// encodedBytes is about what a decision takes of which nothing is kept but what is told of it.
func encodedBytes(m *api.Decision) int { return decisionBytes + 4*proto.Size(m) }
