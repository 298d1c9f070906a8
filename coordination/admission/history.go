// SPDX-License-Identifier: Apache-2.0

package admission

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

// decision is a GetPreferredAllocation with the Allocate that followed, or an Allocate without a preceding
// GetPreferredAllocation. In a log, only the container and the Allocate change.
type decision struct {
	container   *kubelet.Container // nil if unknown
	podUID      string             // "" if unknown
	allocated   []string           // devices of the Allocate
	allocatedAt time.Time          // time of the Allocate; zero before
	refusal     string             // the reason of a failed Allocate; "" for none
	held        bool               // the container has the devices still; set by all and of

	resource string
	message  *decisionMessage
}

// decisionInput is what a decision had to choose from, and the choice.
type decisionInput struct {
	tree    *topology.Tree
	request placement.Request
	choice  placement.Choice
}

// newDecision returns the decision about a question, of a message without container and Allocate, with its
// pairs. The message belongs to the decision.
func newDecision(m *api.Decision, q decisionInput, container *kubelet.Container, uid string) *decision {
	m.Reason = q.choice.Reason
	for _, p := range q.choice.Pairs {
		m.Pairs = append(m.Pairs, &api.Pair{Gpu: p.GPU.ID, Vf: p.VF.ID, Distance: p.Distance.Level.String()})
	}
	return &decision{
		container: container, podUID: uid, resource: m.GetResource(),
		message: &decisionMessage{whole: m, input: &q, cost: messageBytes(m) + q.bytes()},
	}
}

// decisionMessage is the message of a decision. The results of single switches take longer than a decision:
// they are computed when the message is needed, at the latest for the file of the next server, and their
// input is dropped.
type decisionMessage struct {
	mu    sync.Mutex
	whole *api.Decision
	input *decisionInput // nil if the message has its switches
	cost  int            // bytes, without the tree
}

// get returns the message with its switches.
func (m *decisionMessage) get() *api.Decision {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addOptions(true)
	return m.whole
}

// addOptions adds the switches, with or without their results. The mutex must be held.
func (m *decisionMessage) addOptions(results bool) {
	if m.input != nil {
		m.whole.Options = m.input.options(results)
		m.input, m.cost = nil, messageBytes(m.whole)
	}
}

// shorten drops the input, and with it the results of single switches, unless they are being computed.
func (m *decisionMessage) shorten() {
	if m.mu.TryLock() {
		defer m.mu.Unlock()
		m.addOptions(false)
	}
}

// size returns the bytes of a message, with its tree unless that is the last one counted.
func (m *decisionMessage) size(last **topology.Tree) int {
	if !m.mu.TryLock() { // the results are being computed: the input is about to be dropped
		return 0
	}
	defer m.mu.Unlock()
	n := m.cost
	if m.input != nil && m.input.tree != nil && m.input.tree != *last {
		*last = m.input.tree
		for range m.input.tree.Devices() {
			n += treeDeviceBytes
		}
	}
	return n
}

// decisionLog holds the latest decisions, which explain the devices of containers to people, and those of all
// existing containers, the oldest first, within maxDecisions and mostBytes. A decisionLog is not safe for
// concurrent use.
type decisionLog struct {
	// isHeld reports whether a container of a pod holds the device; an empty UID means any pod. With nil, no
	// container holds a device.
	isHeld func(uid, resource, id string) bool

	entries []*decision
	newest  map[kubelet.Device]*decision // the latest decision of each first device
}

// holdsDevices reports whether the container of a decision still holds its devices.
func (d *decisionLog) holdsDevices(e *decision) bool {
	first, ok := e.firstDevice()
	return ok && d.newest[first] == e && d.isHeld != nil && d.isHeld(e.podUID, first.Resource, first.ID)
}

// firstDevice returns the first allocated device of a decision, or false if no device is allocated.
func (e *decision) firstDevice() (kubelet.Device, bool) {
	if len(e.allocated) == 0 || e.refusal != "" {
		return kubelet.Device{}, false
	}
	return kubelet.Device{Resource: e.resource, ID: e.allocated[0]}, true
}

// add appends a decision. A full log first removes the oldest decision whose container no longer exists; if
// all containers exist, the oldest decision.
func (d *decisionLog) add(e *decision) {
	if len(d.entries) == maxDecisions {
		d.evict(maxDecisions)
	}
	d.entries = append(d.entries, e)
	d.fit()
}

// answeredAllocate is an answered Allocate.
type answeredAllocate struct {
	at        time.Time
	container *kubelet.Container // nil if unknown
	podUID    string             // "" if unknown
	resource  string
	ids       []string // in the order for the container
	refusal   string   // "" for none
	asked     bool     // the Allocate follows the latest GetPreferredAllocation
}

// recordAllocate records an Allocate in the decision of the GetPreferredAllocation that it follows,
// otherwise in a new decision.
func (d *decisionLog) recordAllocate(a answeredAllocate) {
	var e *decision
	if n := len(d.entries); n > 0 {
		e = d.entries[n-1]
	}
	if e == nil || !a.asked {
		m := &api.Decision{TimeUnixNano: a.at.UnixNano(), Resource: a.resource, Size: uint32(len(a.ids))}
		e = &decision{resource: a.resource, message: &decisionMessage{whole: m, cost: messageBytes(m)}}
		d.add(e)
	}
	if e.container == nil {
		e.container = a.container
	}
	e.podUID = cmp.Or(e.podUID, a.podUID)
	e.allocatedAt, e.allocated, e.refusal = a.at, slices.Clone(a.ids), a.refusal
	d.index(e)
}

// index makes a decision the latest of its first device.
func (d *decisionLog) index(e *decision) {
	if first, ok := e.firstDevice(); ok {
		if d.newest == nil {
			d.newest = map[kubelet.Device]*decision{}
		}
		d.newest[first] = e
	}
}

// resolveContainers sets unknown containers of decisions from the kubelet's devices.
func (d *decisionLog) resolveContainers(view kubelet.View) {
	for e, container := range d.resolve(view) {
		e.container = &container
	}
}

// resolve returns the containers of decisions without a known container, from the kubelet's devices. Only the
// latest decision of a device gets a container, the first by name if several containers share the device.
func (d *decisionLog) resolve(view kubelet.View) map[*decision]kubelet.Container {
	resolved := map[*decision]kubelet.Container{}
	for container, devices := range view.Containers {
		for resource, ids := range devices {
			for _, id := range ids {
				e := d.newest[kubelet.Device{Resource: resource, ID: id}]
				if e == nil || e.container != nil {
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

// all returns copies of all decisions, the oldest first. all sets held.
func (d *decisionLog) all() []decision {
	all := make([]decision, 0, len(d.entries))
	for _, e := range d.entries {
		of := *e
		of.held = d.holdsDevices(e)
		all = append(all, of)
	}
	return all
}

// of returns copies of the decisions for containers that accept reports true for, the oldest first. The view
// has the containers of decisions without a known container; the log keeps these decisions unchanged. of sets
// held.
func (d *decisionLog) of(view kubelet.View, accept func(kubelet.Container) bool) []decision {
	resolved := d.resolve(view)
	var found []decision
	for _, e := range d.entries {
		of := *e
		of.held = d.holdsDevices(e)
		if container, ok := resolved[e]; ok {
			of.container = &container
		}
		if of.container != nil && accept(*of.container) {
			found = append(found, of)
		}
	}
	return found
}

// maxDecisions is the maximum number of decisions in a log: at least 64 admissions of two containers with two
// resources each, and more than the containers of a node (maxPods of the kubelet is 110).
const maxDecisions = 256

// mostBytes is the approximate maximum memory of a log. On most nodes, 256 decisions use a tenth. Above the
// limit, the oldest decisions lose the results of single switches.
const mostBytes = 16 << 20

// evict removes the oldest of the first n decisions whose container no longer exists. If all of these
// containers exist, evict removes the oldest decision.
func (d *decisionLog) evict(n int) {
	d.remove(max(0, slices.IndexFunc(d.entries[:n], func(e *decision) bool { return !d.holdsDevices(e) })))
}

// fit shortens, then removes decisions until the log meets mostBytes or only the newest is left.
func (d *decisionLog) fit() {
	for i := 0; len(d.entries) > 1 && d.bytes() > mostBytes; i++ {
		if last := len(d.entries) - 1; i < last {
			d.entries[i].message.shorten()
		} else {
			d.evict(last)
		}
	}
}

// bytes returns the approximate size of the log. Successive decisions may share a tree, which counts once.
func (d *decisionLog) bytes() (n int) {
	var last *topology.Tree
	for _, e := range d.entries {
		n += e.message.size(&last) + stringsBytes(e.allocated)
	}
	return n
}

// remove removes the i-th decision.
func (d *decisionLog) remove(i int) {
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
func (q *decisionInput) bytes() int {
	n := devicesBytes(q.choice.GPUs) + devicesBytes(q.choice.VFs) + len(q.choice.Pairs)*pairBytes
	n += len(q.request.Links) * linkBytes
	for _, h := range slices.Concat(q.request.GPUs, q.request.VFs) {
		n += devicesBytes(h.Held) + devicesBytes(h.Free)
	}
	for _, d := range []placement.Devices{q.request.Spare, q.request.Taken} {
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
