// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// listing is an index of PodResources List.
type listing struct {
	kubelet.View
	unread  error                        // why the view is unknown
	holders map[device]kubelet.Container // of several the first by name
	pods    map[kubelet.Pod]bool
	apps    map[kubelet.Pod][]string // names of the pods' containers
}

// newListing returns the index of a view.
func newListing(view kubelet.Reading[kubelet.View]) *listing {
	l := &listing{
		holders: map[device]kubelet.Container{}, pods: map[kubelet.Pod]bool{}, apps: map[kubelet.Pod][]string{},
	}
	l.View, l.unread = view.Get()
	for _, pod := range l.Pods {
		l.pods[pod] = true
	}
	for c, devices := range l.Containers {
		l.apps[c.Pod] = append(l.apps[c.Pod], c.Name)
		shown := Holder{Devices: devices}
		for d := range shown.devices() {
			if first, known := l.holders[d]; !known || c.String() < first.String() {
				l.holders[d] = c
			}
		}
	}
	return l
}

// shows reports whether List shows a device.
func (l *listing) shows(d device) bool {
	_, shown := l.holders[d]
	return shown
}

// isApp reports whether List shows a container of a name.
func (l *listing) isApp(name string) bool {
	for _, names := range l.apps {
		if slices.Contains(names, name) {
			return true
		}
	}
	return false
}

// container returns the devices of a holder's container in List.
func (l *listing) container(h *Holder) (devices kubelet.Devices, shown bool) {
	devices, shown = l.Containers[kubelet.Container{Pod: h.Pod, Name: h.Name}]
	return devices, shown
}

// showsOwn reports whether List shows a recorded container with any of its devices.
func (l *listing) showsOwn(h *Holder) bool {
	shown, _ := l.container(h)
	return h.Pod != (kubelet.Pod{}) &&
		h.has(func(d device) bool { return slices.Contains(shown[d.resource], d.id) })
}

// showsWithout reports whether List shows a recorded container with none of its devices: the container in
// List belongs to a later pod of the same name.
func (l *listing) showsWithout(h *Holder) bool {
	shown, listed := l.container(h)
	return listed && !h.has(func(d device) bool { return slices.Contains(shown[d.resource], d.id) })
}

// showsElsewhere reports whether List shows a device of a recorded container with a container of another pod:
// the pods' names differ, or the pod in List has another container of the recorded name.
func (l *listing) showsElsewhere(h *Holder, d device) bool {
	c, shown := l.holders[d]
	if !shown || h.Pod == c.Pod {
		return false
	}
	_, namesake := l.Containers[kubelet.Container{Pod: c.Pod, Name: h.Name}]
	return h.Pod != (kubelet.Pod{}) || namesake
}

// equal reports whether two sets of devices are equal.
func equal(a, b kubelet.Devices) bool {
	return len(a) == len(b) && within(a, b) && within(b, a)
}

// within reports whether a set contains all devices of another set.
func within(part, whole kubelet.Devices) bool {
	for name, ids := range part {
		for _, id := range ids {
			if !slices.Contains(whole[name], id) {
				return false
			}
		}
	}
	return true
}
