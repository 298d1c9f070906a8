// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// FollowWindow is the longest time between an Allocate and the next question for the same container. The
// kubelet does nothing slow in between (measured: 0.3 ms on two busy cores), but sets up a pod before the
// first question for the next pod. The window separates two containers if neither the kubelet's checkpoint
// nor PodResources can.
const FollowWindow = time.Millisecond

// longPause is the shortest time between two calls for different containers that nothing else tells apart: no
// kubelet takes as long between two resources of a container, however busy the node is.
const longPause = time.Second

// following returns the container continued by a question, judging by the order of the calls, and the reason;
// nil for a new container.
func (e *evidence) following(q *api.PreferRequest) (*recipient, string) {
	if len(q.GetMustInclude()) > 0 {
		return e.takingOver(q)
	}
	var arrived []kubelet.Pod
	if view, err := e.View.Get(); err == nil {
		arrived = e.Listing.arrivals(view)
		if open := e.unwritten(q.GetResource(), view); open != nil {
			return open, secondHalf + " of " + open.Name()
		}
	}
	follows, why := e.follows(q, arrived)
	if !follows {
		return nil, why
	}
	return e.Newest, why
}

// takingOver returns the container that takes over from init containers of its pod: the container of the
// latest Allocate, or a new container.
func (e *evidence) takingOver(q *api.PreferRequest) (*recipient, string) {
	if n := e.continued(q.GetResource()); n != nil {
		return n, takesOver
	}
	of := e.inherited(q)
	if len(of) == 0 {
		return nil, firstHalf
	}
	c := &recipient{Inherits: kubelet.Devices{}, Looked: true}
	if of[0].Pod != (kubelet.Pod{}) {
		c.Pods = []kubelet.Pod{of[0].Pod}
	}
	for _, h := range of {
		for name, ids := range e.Resources.Only(h.Devices) {
			c.Inherits[name] = union(c.Inherits[name], ids)
		}
	}
	for _, h := range e.Holders { // further containers of the pod keep their devices
		same := h.UID == of[0].UID && h.Pod == of[0].Pod && (h.UID != "" || h.Pod != kubelet.Pod{})
		if same && !slices.Contains(h.Devices[q.GetResource()], q.GetMustInclude()[0]) {
			for name, ids := range h.Devices {
				c.Inherits[name] = subtract(c.Inherits[name], ids)
			}
		}
	}
	return c, takesOver
}

// unwritten returns the container without a resource whose devices PodResources shows and the checkpoint does
// not contain: the container in admission, even if its Allocates were missed. Returns nil if none or, by the
// kubelet's records, several match.
func (e *evidence) unwritten(resource string, view kubelet.View) (open *recipient) {
	if !e.Checkpoint.IsKnown() {
		return nil
	}
	for _, h := range e.Holders {
		devices := e.Resources.Only(h.Devices)
		owner := h.Container()
		if _, listed := view.Containers[owner]; !h.Open || !listed || len(devices) == 0 {
			continue
		}
		if open != nil {
			return nil
		}
		open = &recipient{Owner: &owner, Pods: []kubelet.Pod{h.Pod}, Devices: devices, Looked: true}
		if n := e.Newest; n != nil && n.shownBy(view, owner) {
			of := *n
			of.Owner, of.Pods, of.Devices = &owner, open.Pods, devices
			open = &of
		}
	}
	if open == nil || !open.Lacks(resource) {
		return nil
	}
	return open
}

// follows reports whether the asker is the container of the latest Allocate, so that its devices are the
// first half of the request. The second result is the reason, for people. Arrived are the new pods in
// PodResources, if just read.
func (e *evidence) follows(q *api.PreferRequest, arrived []kubelet.Pod) (bool, string) {
	newest, resource, available := e.Newest, q.GetResource(), q.GetAvailable()
	switch {
	case newest == nil:
		return false, firstHalf
	case !newest.Lacks(resource), newest.Asker.hasOtherRequest(q):
		return false, firstHalf + ", the next container"
	case !e.Resources.SameNodes(newest.Devices, resource, available):
		return false, firstHalf + ", the next container, on another NUMA node"
	case e.View.IsKnown() && newest.Looked && newest.unexplained(arrived) > 0:
		return false, firstHalf + ", a new pod has come"
	}
	switch e.Progress {
	case progressOpen:
		return true, secondHalf + " of " + newest.Name()
	case progressComplete:
		return false, firstHalf + ", the next container"
	default:
		return e.guess(resource, available, arrived)
	}
}

// guess replaces follows without the kubelet's checkpoint.
func (e *evidence) guess(resource string, available []string, arrived []kubelet.Pod) (bool, string) {
	newest := e.Newest
	nodes := e.Resources.Nodes(resource, available)
	switch others := newest.unexplained(arrived); {
	case !e.View.IsKnown():
		return e.Recent, "neither checkpoint nor PodResources read, judged by time"
	case others == 0:
		return true, secondHalf + " of " + newest.Name()
	case others == len(arrived):
		return false, firstHalf + ", a new pod has come"
	case newest.Unasked && len(nodes) > 0:
		// Both containers need the same nodes, and the latest allocation took all free devices there. If a device
		// is free again, time has passed; if not, a new pod with a question there requests no pair, and following
		// is harmless.
		return !freeBeside(newest, e.Holders, e.Resources), "several new pods, judged by what is free"
	default:
		// PodResources was not read when the latest allocation began: each further new pod came either before the
		// allocation, without a request, or after the allocation, and may be the asker.
		return e.Recent, "several new pods, judged by time"
	}
}

// freeBeside reports whether further devices of a container's resources are free on its NUMA nodes.
func freeBeside(c *recipient, all holders.Holders, set device.Resources) bool {
	units := all.ByUnit(set.UnitOf)
	for resource, ids := range c.Devices {
		nodes := set.Nodes(resource, ids)
		for _, d := range set[resource].Ordered() {
			if n, known := d.NUMA.Number(); known && nodes[n] && d.Healthy && units.Of(resource, d.ID) == nil {
				return true
			}
		}
	}
	return false
}
