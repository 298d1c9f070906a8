// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
)

// podRequests are the device manager's view of a pod.
type podRequests struct {
	pod        *v1.Pod
	containers []*v1.Container           // in the order of admission, including containers without devices
	requests   []devicemanager.Container // of each container
	required   bool                      // alignment is required
	with       int                       // containers with devices
	pairs      int
}

// Concerns reports whether a pod gets exclusive devices, CPUs or memory on admission, so that the object then
// lists the pod. A pod with a request for 0 devices, or with a ResourceClaim from the scheduler for its
// devices, holds nothing.
func (n *Node) Concerns(pod *v1.Pod) bool {
	for c := range intent.Containers(pod) {
		for name, quantity := range intent.Limits(pod, c) {
			if _, ours := n.devices.Resource(name); ours && quantity.Value() > 0 {
				return true
			}
		}
	}
	return n.managers != nil && n.managers.Concerns(pod)
}

// read reads a pod.
func (n *Node) read(pod *v1.Pod) *podRequests {
	count := len(pod.Spec.InitContainers) + len(pod.Spec.Containers)
	alignment, _ := n.alignment.AlignmentOf(pod.Namespace, pod.Annotations) // unknown values count as required
	w := &podRequests{
		pod: pod, required: alignment == intent.Required,
		containers: make([]*v1.Container, 0, count), requests: make([]devicemanager.Container, 0, count),
	}
	for c, role := range intent.Containers(pod) {
		requests := n.requests(pod, c)
		w.with += min(len(requests), 1)
		w.pairs += requests.Pairs(n.devices)
		w.containers = append(w.containers, c)
		w.requests = append(w.requests, devicemanager.Container{Role: role, Requests: requests})
	}
	return w
}

// requests returns the requests of a container. Resources with NUMA nodes come first; the kubelet uses a
// random order.
func (n *Node) requests(pod *v1.Pod, c *v1.Container) devicemanager.Requests {
	var requests devicemanager.Requests
	for name, quantity := range intent.Limits(pod, c) {
		if i, ours := n.devices.Resource(name); ours {
			if requests == nil {
				requests = make(devicemanager.Requests, 0, 2)
			}
			requests = append(requests, devicemanager.Request{Resource: i, Count: int(quantity.Value())})
		}
	}
	unhinted := func(r devicemanager.Request) int {
		if n.devices.Resources[r.Resource].Hinted {
			return 0
		}
		return 1
	}
	slices.SortFunc(requests, func(a, b devicemanager.Request) int {
		return cmp.Or(unhinted(a)-unhinted(b), a.Resource-b.Resource)
	})
	return requests
}
