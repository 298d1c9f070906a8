// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// model is the sequential model of a node.
type model struct {
	Machine
	Rules

	breaches map[*Event][]breach // found while porcupine looked for an order
}

// breach is a promise that an operation breaks in a state.
type breach struct {
	promise Promise
	reason  string
}

// porcupine returns the model for histories that begin with a state.
func (m model) porcupine(init state) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return init },
		Step: func(s, in, _ any) (bool, any) {
			before, i := s.(state), in.(input)
			if b := m.judge(before, i); b != nil {
				m.note(i.event, *b)
				return false, before
			}
			return true, apply(before, i)
		},
		Equal: func(a, b any) bool { return maps.Equal(a.(state), b.(state)) },
	}
}

// note remembers why an operation has no place.
func (m model) note(e *Event, b breach) {
	if !slices.Contains(m.breaches[e], b) {
		m.breaches[e] = append(m.breaches[e], b)
	}
}

// apply returns the state after an operation.
func apply(s state, in input) state {
	e := in.event
	switch {
	case e.Kind == Release:
		return s.release(e.UID)
	case e.Kind == Allocation && e.Refusal == "" && e.Return != 0:
		return s.take(in.owner(), e.Resource, e.Devices)
	case e.Kind == Confirmation:
		for name, ids := range e.Held {
			s = s.confirm(in.owner(), name, ids)
		}
	}
	return s
}

// owner returns the container as an owner of devices.
func (in input) owner() owner {
	return owner{
		uid: in.event.UID, pod: in.event.Pod, container: in.event.Container,
		init: in.container != nil && in.container.Init,
	}
}

// judge returns the promise that an operation breaks, or nil.
func (m model) judge(s state, in input) *breach {
	var found []breach
	switch {
	case in.event.Return == 0: // nobody has seen a result
	case in.event.Kind == Question:
		found = m.judgeQuestion(s, in)
	case in.event.Kind == View:
		found = m.judgeFree(s, in)
	case in.event.Kind == Allocation:
		found = m.judgeAllocation(s, in)
	case in.event.Kind == Verdict:
		found = m.judgeVerdict(s, in)
	case in.event.Kind == Confirmation:
		for _, name := range slices.Sorted(maps.Keys(in.event.Held)) {
			found = append(found, m.judgeOwners(s, in, name, in.event.Held[name])...)
		}
	}
	for _, b := range found {
		if !m.exempt(b.promise, in) {
			return &b
		}
	}
	return nil
}

// judgeOwners judges whether a container may have devices.
func (m model) judgeOwners(s state, in input, resource string, ids []string) []breach {
	if id, other, found := s.conflict(in.owner(), resource, ids); found {
		return []breach{{TwoOwners, fmt.Sprintf("%s %s belongs to %v", resource, id, other)}}
	}
	return nil
}

// request returns the request of a container for package placement. Devices of the container are held, and
// devices that its init containers leave to it; free devices are on NUMA nodes.
func (m model) request(s state, in input, nodes []int) halves {
	request := halves{}
	for name, count := range in.container.Requests {
		if _, known := m.Kinds[name]; !known || count == 0 {
			continue
		}
		half := placement.Half{Count: count, Held: m.placed(name, s.of(name, in.isOwner))}
		if len(half.Held) == 0 {
			left := m.placed(name, s.of(name, in.isLeft))
			if half.Held, half.Free = left, m.freeOn(s, name, nodes); len(left) > count {
				half.Held, half.Free = nil, left
			}
		}
		half.Count = min(count, len(half.Held)+len(half.Free))
		request[name] = half
	}
	return request
}

// isOwner reports whether an owner is the container.
func (in input) isOwner(o owner) bool {
	return o.uid == in.event.UID && o.container == in.event.Container
}

// isLeft reports whether an owner leaves its devices to the container.
func (in input) isLeft(o owner) bool { return o.uid == in.event.UID && o.init && !in.isOwner(o) }

// freeOn returns the free devices of a resource on NUMA nodes.
func (m model) freeOn(s state, resource string, nodes []int) []placement.Device {
	var free []placement.Device
	for _, d := range m.Devices[resource] {
		if _, held := s[owned{resource, d.ID}]; !held && onNodes(d, nodes) {
			free = append(free, placement.Device{ID: d.ID, Address: d.Address})
		}
	}
	return free
}

// onNodes reports whether the kubelet offers a device to a container with these NUMA nodes.
func onNodes(d device.Device, nodes []int) bool {
	n, known := d.NUMA.Number()
	return !known || len(nodes) == 0 || slices.Contains(nodes, n)
}
