// SPDX-License-Identifier: Apache-2.0

package history

import (
	"maps"
	"slices"
)

// state has the owners of a node's devices. A state never changes; methods return another state.
type state map[owned]owner

// owned is a device of a resource.
type owned struct{ resource, id string }

// owner is a container with devices.
type owner struct {
	uid, pod, container string

	init bool // later containers of the pod may take over the devices
}

// String returns the full name of the container.
func (o owner) String() string { return o.pod + "/" + o.container }

// conflict returns the first device, and the device's owner, that a container may not have: the owner lives
// and is no init container of the same pod.
func (s state) conflict(o owner, resource string, ids []string) (id string, other owner, found bool) {
	for _, id := range slices.Sorted(slices.Values(ids)) {
		other, owned := s[owned{resource, id}]
		if owned && other != o && !(other.uid == o.uid && (other.init || o.init)) {
			return id, other, true
		}
	}
	return "", owner{}, false
}

// take gives devices to a container.
func (s state) take(o owner, resource string, ids []string) state {
	next := maps.Clone(s)
	for _, id := range ids {
		next[owned{resource, id}] = o
	}
	return next
}

// confirm gives devices in the kubelet's records to a container. The records still show an init container
// with devices that a later container has taken over.
func (s state) confirm(o owner, resource string, ids []string) state {
	return s.take(o, resource, slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		return o.init && s[owned{resource, id}].uid == o.uid
	}))
}

// release frees the devices of a pod.
func (s state) release(uid string) state {
	next := maps.Clone(s)
	maps.DeleteFunc(next, func(_ owned, o owner) bool { return o.uid == uid })
	return next
}

// of returns the devices of a resource that an owner of this description has, in order.
func (s state) of(resource string, matches func(owner) bool) []string {
	var ids []string
	for device, o := range s {
		if device.resource == resource && matches(o) {
			ids = append(ids, device.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// sameSet reports whether two lists have the same elements.
func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
