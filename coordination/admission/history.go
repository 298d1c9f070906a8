// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// decision is an entry of the log. The message is immutable, since readers have it without a lock: a change
// replaces it.
type decision struct {
	*api.Decision
	bytes int // of the message, approximately
}

// newDecision returns an entry.
func newDecision(m *api.Decision) *decision {
	return &decision{Decision: m, bytes: decisionBytes + 4*proto.Size(m)}
}

// edit replaces the message by a changed copy.
func (e *decision) edit(change func(*api.Decision)) {
	m := proto.CloneOf(e.Decision)
	change(m)
	*e = *newDecision(m)
}

// decisionBytes is the size of an entry with its message, without lists.
const decisionBytes = 4 << 10

// decisionLog holds the latest decisions, which explain the devices of containers to people, and those of all
// existing containers, the oldest first, within maxDecisions and mostBytes. A decisionLog is not safe for
// concurrent use.
type decisionLog struct {
	// isHeld reports whether a container of a pod holds the device; an empty UID means any pod. With nil, no
	// container holds a device.
	isHeld func(uid, resource, id string) bool

	entries []*decision
	newest  map[kubelet.Device]*decision // the latest decision of each first device
	inputs  []*decisionInput             // of the latest decisions, if their options are not computed
}

// holdsDevices reports whether the container of a decision still holds its devices.
func (d *decisionLog) holdsDevices(e *decision) bool {
	first, ok := e.firstDevice()
	return ok && d.newest[first] == e && d.isHeld != nil && d.isHeld(e.GetPodUid(), first.Resource, first.ID)
}

// firstDevice returns the first allocated device of a decision, or false if no device is allocated.
func (e *decision) firstDevice() (kubelet.Device, bool) {
	if len(e.GetAllocated()) == 0 || e.GetRefusal() != "" {
		return kubelet.Device{}, false
	}
	return kubelet.Device{Resource: e.GetResource(), ID: e.GetAllocated()[0]}, true
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

// addQuestion appends the decision about a question. Beyond the limits, the oldest inputs are dropped, and
// with them the results of single switches.
func (d *decisionLog) addQuestion(q *decisionInput) {
	d.add(q.decision)
	d.inputs = append(d.inputs, q)
	for len(d.inputs) > 1 && (len(d.inputs) > maxInputs || countDevices(d.inputs) > maxListed) {
		oldest := d.inputs[0]
		d.setOptions(oldest, oldest.options(false))
	}
}

// setOptions adds options to a decision, and drops the input.
func (d *decisionLog) setOptions(q *decisionInput, options []*api.Option) {
	q.decision.edit(func(m *api.Decision) { m.Options = options })
	d.inputs = slices.DeleteFunc(d.inputs, func(other *decisionInput) bool { return other == q })
	d.fit()
}

// recordAllocate records an Allocate. If the Allocate follows the latest GetPreferredAllocation (asked), it
// belongs to the decision of that question, which is the latest one, unless an earlier server has answered
// the question. Otherwise the message is a decision of its own.
func (d *decisionLog) recordAllocate(a *api.Decision) {
	var latest *decision
	if n := len(d.entries); n > 0 {
		latest = d.entries[n-1]
	}
	if !a.GetAsked() || !latest.awaits(a.GetResource()) {
		a.Asked = false
		d.add(newDecision(a))
	} else {
		latest.edit(func(m *api.Decision) {
			if m.Container == nil {
				m.Container = a.GetContainer()
			}
			m.PodUid = cmp.Or(m.GetPodUid(), a.GetPodUid())
			if m.Container != nil {
				m.Container.Uid = m.GetPodUid()
			}
			m.Allocated, m.AllocatedUnixNano, m.Refusal = a.GetAllocated(), a.GetAllocatedUnixNano(), a.GetRefusal()
		})
	}
	d.index(d.entries[len(d.entries)-1])
}

// awaits reports whether a decision is about a question for a resource that has had no Allocate.
func (e *decision) awaits(resource string) bool {
	return e != nil && e.GetAsked() && e.GetResource() == resource && e.GetAllocatedUnixNano() == 0
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
		e.edit(func(m *api.Decision) { m.Container = encodeOwner(&container, m.GetPodUid()) })
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
				if e == nil || e.GetContainer() != nil {
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

// all returns all decisions, the oldest first, with held as of now.
func (d *decisionLog) all() []*api.Decision {
	all := make([]*api.Decision, 0, len(d.entries))
	for _, e := range d.entries {
		if held := d.holdsDevices(e); held != e.GetHeld() {
			e.edit(func(m *api.Decision) { m.Held = held })
		}
		all = append(all, e.Decision)
	}
	return all
}

// of returns the decisions for containers that accept reports true for, the oldest first. The view has the
// containers of decisions without a known container; the log keeps these decisions unchanged.
func (d *decisionLog) of(view kubelet.View, accept func(kubelet.Container) bool) []*api.Decision {
	resolved := d.resolve(view)
	var found []*api.Decision
	for i, m := range d.all() {
		if container, ok := resolved[d.entries[i]]; ok {
			m = proto.CloneOf(m)
			m.Container = encodeOwner(&container, m.GetPodUid())
		}
		if m.Container != nil && accept(*decodeOwner(m.Container)) {
			found = append(found, m)
		}
	}
	return found
}

// maxDecisions is the maximum number of decisions in a log: at least 64 admissions of two containers with two
// resources each, and more than the containers of a node (maxPods of the kubelet is 110).
const maxDecisions = 256

// mostBytes is the approximate maximum memory of a log's messages. On most nodes, 256 decisions use a tenth.
const mostBytes = 16 << 20

// Limits of the inputs. The options are computed after each Allocate.
const (
	maxInputs = 64      // each can have a tree of its own
	maxListed = 1 << 18 // devices in all lists: 8 MiB
)

// evict removes the oldest of the first n decisions whose container no longer exists. If all of these
// containers exist, evict removes the oldest decision.
func (d *decisionLog) evict(n int) {
	d.remove(max(0, slices.IndexFunc(d.entries[:n], func(e *decision) bool { return !d.holdsDevices(e) })))
}

// fit removes decisions until the log meets mostBytes or only the newest is left.
func (d *decisionLog) fit() {
	for len(d.entries) > 1 && d.bytes() > mostBytes {
		d.evict(len(d.entries) - 1)
	}
}

// bytes returns the approximate size of the log's messages.
func (d *decisionLog) bytes() (n int) {
	for _, e := range d.entries {
		n += e.bytes
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
