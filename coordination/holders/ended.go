// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// offer is the kubelet's offer as sets.
type offer struct {
	resource string
	free     map[string]bool // devices without a holder
	withheld map[string]bool
}

// newOffer returns the sets of an offer.
func newOffer(asked Offer) offer {
	o := offer{asked.Resource, map[string]bool{}, map[string]bool{}}
	for _, id := range asked.Available {
		o.free[id] = !slices.Contains(asked.MustInclude, id)
	}
	for _, id := range asked.Withheld {
		o.withheld[id] = true
	}
	return o
}

// ended decides which pods of recorded containers have ended.
type ended struct {
	offer
	*record
	*podNames
	alive map[string]bool // pods with devices of their own in List, by key
	gone  map[string]bool // by key
}

// podKey identifies the pod of a holder.
func podKey(h *Holder) string {
	if h.UID == "" && h.Pod == (kubelet.Pod{}) {
		return fmt.Sprintf("%p", h)
	}
	return h.UID + " " + h.Pod.Namespace + "/" + h.Pod.Name
}

// judge decides about the pods of recorded containers. All containers of a pod end together.
func (e *ended) judge(containers []*Holder) {
	for _, h := range containers {
		e.alive[podKey(h)] = e.alive[podKey(h)] || e.showsOwn(h)
	}
	for _, h := range containers {
		e.gone[podKey(h)] = e.gone[podKey(h)] || e.isGone(h)
	}
	for _, h := range containers {
		if e.isWithheld(h) {
			e.gone[podKey(h)] = false
		}
	}
}

// isGone reports whether a recorded container proves the end of its pod.
func (e *ended) isGone(h *Holder) bool {
	if e.isComplete() || e.isTold(h.UID) {
		return !e.isTold(h.UID)
	}
	if e.lacks(h.UID) || e.showsWithout(h) || e.isAbsent(h) || e.hasSuccessor(h) {
		return true
	}
	return h.has(func(d device) bool {
		return e.isFree(h, d) || e.isGivenAway(h, d) || e.showsElsewhere(h, d)
	})
}

// isFree reports whether the kubelet offers a device of a recorded container, so that the pod has ended.
func (e *ended) isFree(h *Holder, d device) bool {
	return !e.shows(d) && d.resource == e.resource && e.free[d.id] && !e.alive[podKey(h)]
}

// isWithheld reports whether the kubelet withholds a device that only the pod of a recorded container can
// have: the pod has ended after the kubelet's choice of NUMA nodes for the container of the question.
func (e *ended) isWithheld(h *Holder) bool {
	return slices.ContainsFunc(h.Devices[e.resource], func(id string) bool {
		d := device{e.resource, id}
		return e.withheld[id] && !e.shows(d) && !e.isShared(d) && !e.isGiven(d)
	})
}

// isAbsent reports whether the kubelet no longer lists the pod of a recorded container. If the pod's name is
// unknown, the container's name decides: List shows app containers of that name. Init containers, which List
// does not show, seldom share a name with app containers.
func (e *ended) isAbsent(h *Holder) bool {
	switch known := e.known[h.UID]; {
	case e.unread != nil || e.pods[h.Pod]:
		return false
	case e.single != nil:
		return slices.Contains(e.single, h.Pod)
	case h.UID == "":
		return e.isSameKubelet()
	case h.Pod != kubelet.Pod{}:
		return (known.Listed || known.Admitted) && known.Pod == h.Pod && known.Life == e.Life
	default:
		admitted := known.Admitted && known.Life == e.Life || !e.isKnown(h.UID) && e.isSameKubelet()
		return admitted && e.isApp(h.Name) && !h.has(e.shows)
	}
}

// hasLeft reports whether List, which has shown the pod of a container without a record, no longer does. The
// kubelet offers the devices of such a container while it runs, and to others: that proves nothing.
func (e *ended) hasLeft(h *Holder) bool {
	return e.single == nil && !e.isTold(h.UID) && e.isAbsent(h)
}

// hasSuccessor reports whether a request source lists another pod of the same name instead of a recorded
// container's pod. Two pods of one name are never alive at the same time.
func (e *ended) hasSuccessor(h *Holder) bool {
	if h.Pod == (kubelet.Pod{}) || e.isTold(h.UID) {
		return false
	}
	return e.uidOf(h.Pod) != ""
}
