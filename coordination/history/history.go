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
	Container   *kubelet.Container // nil if unknown
	PodUID      string             // "" if unknown
	Allocated   []string           // devices of the Allocate
	AllocatedAt time.Time          // time of the Allocate; zero before
	Refusal     string             // the reason of a failed Allocate; "" for none
	Held        bool               // the container has the devices still; set by All and Of

	resource string
	message  *message
}

// Input is what a decision had to choose from, and the choice.
type Input struct {
	Tree    *topology.Tree
	Request placement.Request
	Choice  placement.Choice
}

// New returns the decision about a question, of a message without container and Allocate. New adds the pairs,
// and later the switches. The message belongs to the decision.
func New(m *api.Decision, q Input, container *kubelet.Container, uid string) *Decision {
	m.Reason = q.Choice.Reason
	for _, p := range q.Choice.Pairs {
		m.Pairs = append(m.Pairs, &api.Pair{Gpu: p.GPU.ID, Vf: p.VF.ID, Distance: p.Distance.Level.String()})
	}
	return &Decision{
		Container: container, PodUID: uid, resource: m.GetResource(),
		message: &message{whole: m, input: &q, cost: messageBytes(m) + q.bytes()},
	}
}

// message is the message of a decision. The results of single switches take longer than a decision: they are
// computed when the message is needed, at the latest for the file of the next server, and their input is
// dropped.
type message struct {
	mu    sync.Mutex
	whole *api.Decision
	input *Input // nil if the message has its switches
	cost  int    // bytes, without the tree
}

// get returns the message with its switches.
func (m *message) get() *api.Decision {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addOptions(true)
	return m.whole
}

// addOptions adds the switches, with or without their results. The mutex must be held.
func (m *message) addOptions(results bool) {
	if m.input != nil {
		m.whole.Options = m.input.options(results)
		m.input, m.cost = nil, messageBytes(m.whole)
	}
}

// shorten drops the input, and with it the results of single switches, unless they are being computed.
func (m *message) shorten() {
	if m.mu.TryLock() {
		defer m.mu.Unlock()
		m.addOptions(false)
	}
}

// size returns the bytes of a message, with its tree unless that is the last one counted.
func (m *message) size(last **topology.Tree) int {
	if !m.mu.TryLock() { // the results are being computed: the input is about to be dropped
		return 0
	}
	defer m.mu.Unlock()
	n := m.cost
	if m.input != nil && m.input.Tree != nil && m.input.Tree != *last {
		*last = m.input.Tree
		for range m.input.Tree.Devices() {
			n += treeDeviceBytes
		}
	}
	return n
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
	return deviceKey{e.resource, e.Allocated[0]}, true
}

// Add appends a decision. A full log first removes the oldest decision whose container no longer exists; if
// all containers exist, the oldest decision.
func (d *Log) Add(e *Decision) {
	if len(d.entries) == Most {
		d.evict(Most)
	}
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
		m := &api.Decision{TimeUnixNano: a.At.UnixNano(), Resource: a.Resource, Size: uint32(len(a.IDs))}
		e = &Decision{resource: a.Resource, message: &message{whole: m, cost: messageBytes(m)}}
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
			d.entries[i].message.shorten()
		} else {
			d.evict(last)
		}
	}
}

// bytes returns the approximate size of the log. Successive decisions may share a tree, which counts once.
func (d *Log) bytes() (n int) {
	var last *topology.Tree
	for _, e := range d.entries {
		n += e.message.size(&last) + stringsBytes(e.Allocated)
	}
	return n
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
	deviceBytes = int(unsafe.Sizeof(placement.Device{}))
	linkBytes   = int(unsafe.Sizeof(topology.Link{}))
	pairBytes   = int(unsafe.Sizeof(placement.Pair{}))
	stringBytes = int(unsafe.Sizeof(""))
	// a device of a tree, with its share of the maps
	treeDeviceBytes = 1 << 10
	// a decision, its copy and its message, without lists
	decisionBytes = 4 << 10
)

// messageBytes returns the approximate size of a decision by its message.
func messageBytes(m *api.Decision) int { return decisionBytes + 4*proto.Size(m) }

// bytes returns the approximate size of a question without its tree.
func (q *Input) bytes() int {
	n := devicesBytes(q.Choice.GPUs) + devicesBytes(q.Choice.VFs) + len(q.Choice.Pairs)*pairBytes
	n += len(q.Request.Links) * linkBytes
	for _, h := range slices.Concat(q.Request.GPUs, q.Request.VFs) {
		n += devicesBytes(h.Held) + devicesBytes(h.Free)
	}
	for _, d := range []placement.Devices{q.Request.Spare, q.Request.Taken} {
		n += devicesBytes(d.GPUs) + devicesBytes(d.VFs)
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
