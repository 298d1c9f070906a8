// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Encode converts a decision to its wire format.
func (e *Decision) Encode() *api.Decision {
	m := proto.CloneOf(e.message())
	if e.Container != nil {
		m.Container = Owner(*e.Container, e.PodUID)
	}
	m.PodUid, m.Allocated, m.Refusal, m.Held = e.PodUID, e.Allocated, e.Refusal, e.Held
	if !e.AllocatedAt.IsZero() {
		m.AllocatedUnixNano = e.AllocatedAt.UnixNano()
	}
	return m
}

// encode converts a decision to its wire format, without container and Allocate. With results, encode
// computes a choice for each switch.
func (e *Decision) encode(results bool) *api.Decision {
	m := &api.Decision{
		TimeUnixNano: e.At.UnixNano(),
		TookNano:     int64(e.Took),
		Resource:     e.Resource,
		Asked:        e.HasQuestion,
		Size:         uint32(e.Size),
		Available:    uint32(e.Available),
		MustInclude:  e.MustInclude,
		Known:        e.Known,
		Chosen:       e.Chosen,
		Reason:       e.Choice.Reason,
	}
	for _, name := range slices.Sorted(maps.Keys(e.Planned)) {
		if m.Planned == nil {
			m.Planned = map[string]*api.DeviceList{}
		}
		m.Planned[name] = &api.DeviceList{Ids: e.Planned[name]}
	}
	for _, p := range e.Choice.Pairs {
		m.Pairs = append(m.Pairs, &api.Pair{Gpu: p.GPU.ID, Vf: p.VF.ID, Distance: p.Distance.Level.String()})
	}
	if e.HasQuestion {
		for _, o := range e.options(results) {
			m.Options = append(m.Options, &api.Option{
				Switch: o.name, FreeGpus: uint32(o.gpus), FreeVfs: uint32(o.vfs), TakenGpus: uint32(o.takenGPUs),
				TakenVfs: uint32(o.takenVFs), Result: o.result,
			})
		}
	}
	return m
}

// Owner converts a container to its wire format; an empty UID means unknown.
func Owner(c kubelet.Container, uid string) *api.Owner {
	return &api.Owner{Namespace: c.Namespace, Pod: c.Pod.Name, Container: c.Name, Uid: uid}
}

// Saved is the file format of a decision.
type Saved struct {
	Container   *kubelet.Container `json:"container,omitempty"`
	PodUID      string             `json:"uid,omitempty"`
	Allocated   []string           `json:"allocated"`
	AllocatedAt time.Time          `json:"given"`
	Fixed       json.RawMessage    `json:"decision"` // api.Decision
}

// Save converts decisions to their file format. It omits decisions that fail to encode.
func Save(decisions []Decision) []Saved {
	saved := make([]Saved, 0, len(decisions))
	for _, e := range decisions {
		if fixed, err := protojson.Marshal(e.message()); err == nil {
			saved = append(saved, Saved{e.Container, e.PodUID, e.Allocated, e.AllocatedAt, fixed})
		}
	}
	return saved
}

// Restore replaces the decisions of an empty log by those that an earlier server saved. If the saved
// decisions are invalid, Restore returns an error and the log stays empty.
func (d *Log) Restore(saved []Saved) error {
	restored := Log{IsHeld: d.IsHeld}
	if len(saved) > Most {
		return fmt.Errorf("%d decisions, more than %d", len(saved), Most)
	}
	for _, s := range saved {
		m := &api.Decision{}
		if err := protojson.Unmarshal(s.Fixed, m); err != nil {
			return fmt.Errorf("parse a decision: %w", err)
		}
		if m.GetResource() == "" || len(s.Allocated) == 0 {
			return errors.New("a decision without resource or allocated devices")
		}
		e := &Decision{
			At: time.Unix(0, m.GetTimeUnixNano()), Container: s.Container, PodUID: s.PodUID,
			Resource: m.GetResource(), Size: int(m.GetSize()), HasQuestion: m.GetAsked(), Allocated: s.Allocated,
			AllocatedAt: s.AllocatedAt,
			message:     func() *api.Decision { return m }, cost: encodedBytes(m), shortened: true,
		}
		restored.entries = append(restored.entries, e)
		restored.index(e)
	}
	restored.fit()
	*d = restored
	return nil
}

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
