// SPDX-License-Identifier: Apache-2.0

package asking

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Listing is the content of the last PodResources List. A Listing is immutable.
type Listing struct {
	Read       bool   // List was called at least once
	Life       string // of the answering kubelet
	Pods       map[kubelet.Pod]bool
	Containers map[kubelet.Container]kubelet.Devices
	// the pods of the last List with new pods. The kubelet lists a pod from just before its admission, therefore
	// the pod in admission, or the last admitted pod, is among them
	Arrived []kubelet.Pod
}

// With returns the listing after a further List, which may be unknown.
func (l Listing) With(read kubelet.Reading[kubelet.View]) Listing {
	view, err := read.Get()
	if err != nil {
		return l
	}
	next := Listing{true, view.Life, map[kubelet.Pod]bool{}, view.Containers, l.Arrived}
	for _, pod := range view.Pods {
		next.Pods[pod] = true
	}
	if arrived := l.arrivals(view); len(arrived) > 0 {
		next.Arrived = arrived
	}
	return next
}

// arrivals returns the pods missing in the listing, and pods deleted and created again under the same name: a
// running container never loses a device.
func (l Listing) arrivals(view kubelet.View) (arrived []kubelet.Pod) {
	renewed := map[kubelet.Pod]bool{}
	for c, devices := range l.Containers {
		for name, ids := range devices {
			if len(ids) > 0 && !slices.Contains(view.Containers[c][name], ids[0]) {
				renewed[c.Pod] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(view.Pods), func(p kubelet.Pod) bool {
		return l.Pods[p] && !renewed[p]
	})
}
