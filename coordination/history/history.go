// SPDX-License-Identifier: Apache-2.0

// Package history keeps the latest decisions, which explain the devices of containers to people.
package history

import (
	"cmp"
	"slices"
	"sync"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Decision is a GetPreferredAllocation with the Allocate that followed, or an Allocate without a preceding
// GetPreferredAllocation. In a log, only the container and the Allocate change.
type Decision struct {
	At          time.Time
	Took        time.Duration
	Container   *kubelet.Container // nil if unknown
	PodUID      string             // "" if unknown
	Resource    string
	Size        int      // number of requested devices
	Available   int      // number of offered devices
	MustInclude []string // offered devices that the answer must contain
	HasQuestion bool     // false for an Allocate without a preceding GetPreferredAllocation
	Known       string   // the requests of the container and their source, for people
	Tree        *topology.Tree
	Request     placement.Request
	Choice      placement.Choice
	Chosen      []string            // preferred devices of the resource
	Planned     map[string][]string // planned devices of other resources
	Allocated   []string            // devices of the Allocate
	AllocatedAt time.Time           // time of the Allocate; zero before
	Refusal     string              // the reason of a failed Allocate; "" for none
	Held        bool                // the container has the devices still; set by All and Of

	compact   *compactRequest      // replaces Request if that is long
	message   func() *api.Decision // the wire format without container and Allocate
	cost      int                  // bytes, without the tree
	treeCost  int                  // bytes of the tree, which other decisions may share
	shortened bool                 // Tree, Request and Choice are dropped
}

// Log holds the latest decisions and those of all existing containers, the oldest first, within [Most] and
// 16 MiB. A Log is not safe for concurrent use.
type Log struct {
	// IsHeld reports whether a container of a pod holds the device; an empty UID means any pod. With nil, no
	// container holds a device.
	IsHeld func(uid, resource, id string) bool

	entries []*Decision
	newest  map[deviceKey]*Decision // the latest decision of each first device
}

// holdsDevices reports whether the container of a decision still holds its devices.
func (d *Log) holdsDevices(e *Decision) bool {
	first, ok := e.firstDevice()
	return ok && d.newest[first] == e && d.IsHeld != nil && d.IsHeld(e.PodUID, first.resource, first.id)
}

// deviceKey identifies a device of the node.
type deviceKey struct{ resource, id string }

// firstDevice returns the first allocated device of a decision, or false if no device is allocated.
func (e *Decision) firstDevice() (deviceKey, bool) {
	if len(e.Allocated) == 0 || e.Refusal != "" {
		return deviceKey{}, false
	}
	return deviceKey{e.Resource, e.Allocated[0]}, true
}

// Add appends a decision. A full log first removes the oldest decision whose container no longer exists; if
// all containers exist, the oldest decision.
func (d *Log) Add(e *Decision) {
	if len(d.entries) == Most {
		d.evict(Most)
	}
	if isLong(e.Request) {
		e.compact, e.Request = newCompactRequest(e.Request, e.Choice), placement.Request{}
	}
	original := *e
	e.message = sync.OnceValue(func() *api.Decision { return original.encode(true) })
	e.cost, e.treeCost = e.bytes(), d.treeCost(e)
	d.entries = append(d.entries, e)
	d.fit()
}

// Allocation is an answered Allocate.
type Allocation struct {
	At        time.Time
	Container *kubelet.Container // nil if unknown
	PodUID    string             // "" if unknown
	Resource  string
	IDs       []string // in the order for the container
	Refusal   string   // "" for none
	Asked     bool     // the Allocate follows the latest GetPreferredAllocation
}

// RecordAllocation records an Allocate in the decision of the GetPreferredAllocation that it follows,
// otherwise in a new decision.
func (d *Log) RecordAllocation(a Allocation) {
	var e *Decision
	if n := len(d.entries); n > 0 {
		e = d.entries[n-1]
	}
	if e == nil || !a.Asked {
		e = &Decision{At: a.At, Resource: a.Resource, Size: len(a.IDs)}
		d.Add(e)
	}
	if e.Container == nil {
		e.Container = a.Container
	}
	e.PodUID = cmp.Or(e.PodUID, a.PodUID)
	e.AllocatedAt, e.Allocated, e.Refusal = a.At, slices.Clone(a.IDs), a.Refusal
	d.index(e)
}

// index makes a decision the latest of its first device.
func (d *Log) index(e *Decision) {
	if first, ok := e.firstDevice(); ok {
		if d.newest == nil {
			d.newest = map[deviceKey]*Decision{}
		}
		d.newest[first] = e
	}
}

// Resolve sets unknown containers of decisions from the kubelet's devices.
func (d *Log) Resolve(view kubelet.View) {
	for e, container := range d.resolve(view) {
		e.Container = &container
	}
}

// resolve returns the containers of decisions without a known container, from the kubelet's devices. Only the
// latest decision of a device gets a container, the first by name if several containers share the device.
func (d *Log) resolve(view kubelet.View) map[*Decision]kubelet.Container {
	resolved := map[*Decision]kubelet.Container{}
	for container, devices := range view.Containers {
		for resource, ids := range devices {
			for _, id := range ids {
				e := d.newest[deviceKey{resource, id}]
				if e == nil || e.Container != nil {
					continue
				}
				if first, known := resolved[e]; !known || container.String() < first.String() {
					resolved[e] = container
				}
			}
		}
	}
	return resolved
}

// All returns copies of all decisions, the oldest first. All sets Held.
func (d *Log) All() []Decision {
	all := make([]Decision, 0, len(d.entries))
	for _, e := range d.entries {
		of := *e
		of.Held = d.holdsDevices(e)
		all = append(all, of)
	}
	return all
}

// Of returns copies of the decisions for containers that accept reports true for, the oldest first. The view
// has the containers of decisions without a known container; the log keeps these decisions unchanged. Of sets
// Held.
func (d *Log) Of(view kubelet.View, accept func(kubelet.Container) bool) []Decision {
	resolved := d.resolve(view)
	var found []Decision
	for _, e := range d.entries {
		of := *e
		of.Held = d.holdsDevices(e)
		if container, ok := resolved[e]; ok {
			of.Container = &container
		}
		if of.Container != nil && accept(*of.Container) {
			found = append(found, of)
		}
	}
	return found
}

// OfRunning returns copies of the decisions whose containers still hold their devices, the oldest first.
func (d *Log) OfRunning() []Decision {
	var living []Decision
	for _, e := range d.entries {
		if d.holdsDevices(e) {
			living = append(living, *e)
		}
	}
	return living
}

// Most is the maximum number of decisions in a log: at least 64 admissions of two containers with two
// resources each, and more than the containers of a node (maxPods of the kubelet is 110).
const Most = 256

// mostBytes is the approximate maximum memory of a log. On most nodes, 256 decisions use a tenth. Above the
// limit, the oldest decisions lose the results of single switches.
const mostBytes = 16 << 20

// evict removes the oldest of the first n decisions whose container no longer exists. If all of these
// containers exist, evict removes the oldest decision.
func (d *Log) evict(n int) {
	d.remove(max(0, slices.IndexFunc(d.entries[:n], func(e *Decision) bool { return !d.holdsDevices(e) })))
}

// fit shortens, then removes decisions until the log meets mostBytes or only the newest is left.
func (d *Log) fit() {
	for i := 0; len(d.entries) > 1 && d.bytes() > mostBytes; i++ {
		if last := len(d.entries) - 1; i < last {
			d.entries[i].shorten()
		} else {
			d.evict(last)
		}
	}
}

// bytes returns the approximate size of the log. Successive decisions may share a tree, which counts once.
func (d *Log) bytes() int {
	n := 0
	var tree *topology.Tree
	for _, e := range d.entries {
		n += e.cost
		if e.Tree != nil && e.Tree != tree {
			tree = e.Tree
			n += e.treeCost
		}
	}
	return n
}

// treeCost returns the approximate size of the tree of a decision.
func (d *Log) treeCost(e *Decision) int {
	if n := len(d.entries); n > 0 && d.entries[n-1].Tree == e.Tree {
		return d.entries[n-1].treeCost
	}
	n := 0
	if e.Tree != nil {
		for range e.Tree.Devices() {
			n += treeDeviceBytes
		}
	}
	return n
}

// shorten drops the input of the choice. The results of single switches are lost.
func (e *Decision) shorten() {
	if e.shortened {
		return
	}
	m := e.encode(false)
	e.message = func() *api.Decision { return m }
	e.Tree, e.Request, e.Choice, e.compact = nil, placement.Request{}, placement.Choice{}, nil
	e.shortened, e.cost = true, encodedBytes(m)
}

// remove removes the i-th decision.
func (d *Log) remove(i int) {
	if first, ok := d.entries[i].firstDevice(); ok && d.newest[first] == d.entries[i] {
		delete(d.newest, first)
	}
	d.entries = slices.Delete(d.entries, i, i+1)
}

// Sizes in memory, in bytes.
const (
	deviceBytes   = int(unsafe.Sizeof(placement.Device{}))
	functionBytes = int(unsafe.Sizeof(functionCount{}))
	halfBytes     = int(unsafe.Sizeof(compactHalf{}))
	pairBytes     = int(unsafe.Sizeof(placement.Pair{}))
	linkBytes     = int(unsafe.Sizeof(topology.Link{}))
	stringBytes   = int(unsafe.Sizeof(""))
	// a device of a tree, with its share of the maps
	treeDeviceBytes = 1 << 10
	// a decision, its copy and its message, without lists
	decisionBytes = 4 << 10
)

// bytes returns the approximate size of a decision without its tree.
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
	if e.compact != nil {
		n += len(e.compact.links)*linkBytes + e.compact.gpus.bytes() + e.compact.vfs.bytes()
	}
	return n
}

func (s *compactKind) bytes() int {
	n := (len(s.spare) + len(s.taken)) * functionBytes
	for _, h := range s.halves {
		n += halfBytes + devicesBytes(h.held) + devicesBytes(h.chosen) + len(h.others)*functionBytes
	}
	return n
}

// devicesBytes includes the IDs, because the list may hold their last references.
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

// encodedBytes returns the approximate size of a decision of which only the message is kept.
func encodedBytes(m *api.Decision) int { return decisionBytes + 4*proto.Size(m) }
