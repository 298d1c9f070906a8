// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Find searches the sources for the holders.
func Find(s Sources) (r Result) {
	listed := newListing(s.View)
	recorded := newRecord(s)
	isOf := func(h Holder) bool { return h.Life == s.Life }
	named := &podNames{
		listing: listed, known: s.Known, looked: s.Looked, listed: s.Listed, life: s.ListedLife, kubelet: s.Life,
		single: s.Single, again: s.Life != "" && slices.ContainsFunc(s.Before, isOf),
		admitted: map[string]bool{}, learned: map[string]Known{},
	}
	named.told, named.untold = s.Pods.Get()
	asked := newOffer(s.Question, s.Withheld)
	containers := recorded.containers()
	named.assign(containers, recorded)
	over := &ended{
		offer: asked, record: recorded, podNames: named, alive: map[string]bool{},
		gone: map[string]bool{},
	}
	if !s.Ended {
		over.judge(containers)
	}
	f := &search{
		record: recorded, podNames: named, resource: s.Question.GetResource(), ended: s.Ended,
		byName: map[kubelet.Container][]*Holder{},
	}
	var lost []*Holder
	lost, r.Unlisted = recorded.lost(named)
	f.addRecorded(slices.Concat(containers, slices.DeleteFunc(lost, over.hasLeft)), over.gone)
	f.addListed()
	named.learnTold()
	over.learnFreed(containers)
	r.Allocates, r.Known = f.addAllocated(), named.learned
	for _, h := range f.found {
		if len(h.Devices) > 0 {
			r.Holders = append(r.Holders, *h)
		}
	}
	return r
}

// search collects holders.
type search struct {
	*record
	*podNames
	resource string // of the question
	ended    bool   // ended pods count as holders
	found    []*Holder
	byName   map[kubelet.Container][]*Holder // holders with a known pod: pods of one name can be several
}

func (s *search) add(h *Holder) {
	s.found = append(s.found, h)
	if h.Pod != (kubelet.Pod{}) {
		s.byName[h.Container()] = append(s.byName[h.Container()], h)
	}
}

// addRecorded adds the recorded containers of living pods. A container that List does not show with the other
// containers of the pod is an init container.
func (s *search) addRecorded(containers []*Holder, gone map[string]bool) {
	for _, h := range containers {
		s.learn(h.UID, h.Pod, !gone[podKey(h)])
		known := s.learned[h.UID]
		h.Init = h.Init || known.Listed && !slices.Contains(known.Containers, h.Name)
		if !gone[podKey(h)] {
			s.add(h)
		}
	}
}

// addListed adds the containers in List. Devices that the checkpoint lacks belong to the container in
// admission. A recorded container that List shows with none of its devices keeps them: List shows a later pod
// of the name, or the kubelet has lost its records. Where the pod has ended, judge has removed it.
func (s *search) addListed() {
	for c, devices := range s.Containers {
		switch known := s.shownAs(c); {
		case len(devices) == 0:
		case known == nil:
			s.add(&Holder{
				UID: s.uidOf(c.Pod), Pod: c.Pod, Name: c.Name, Devices: devices, Open: true, Life: s.Life,
			})
		case !equal(known.Devices, devices):
			known.Devices, known.Open = devices, true
		}
	}
}

// shownAs returns the recorded container that List shows under a name: of the pods of the name the one with
// any of the devices; else one whose record the kubelet has lost; nil for none.
func (s *search) shownAs(c kubelet.Container) (lost *Holder) {
	for _, h := range s.byName[c] {
		switch {
		case !h.IsShownWithout(s.View):
			return h
		case h.Lost:
			lost = h
		}
	}
	return lost
}

// addAllocated adds the devices of Allocates that are not over, and returns these Allocates.
func (s *search) addAllocated() (left []Allocate) {
	for _, a := range s.allocates {
		if len(a.IDs) == 0 || s.isOver(a) {
			continue
		}
		left = append(left, a)
		open := s.openOf(a)
		if open == nil {
			open = &Holder{UID: a.UID, Pod: a.Pod, Name: a.Name, Open: true, Life: a.Life}
			s.add(open)
		}
		devices := kubelet.Devices{}
		maps.Copy(devices, open.Devices)
		devices[a.Resource] = a.IDs
		open.UID, open.Devices = cmp.Or(open.UID, a.UID), devices
	}
	return left
}

// openOf returns the container in admission of an Allocate, nil if unknown.
func (s *search) openOf(a Allocate) *Holder {
	for _, h := range s.found {
		if s.unreadable != nil && slices.Equal(h.Devices[a.Resource], a.IDs) {
			h.Open = true // a holder of the last search
			return h
		}
		isNamed := h.UID == a.UID || h.UID == "" && h.Pod == a.Pod
		same := a.UID == "" || isNamed && h.Name == a.Name
		if h.Open && same && len(h.Devices[a.Resource]) == 0 {
			return h
		}
	}
	return nil
}

// isOver reports whether the kubelet's records contain the result of an Allocate, or the pod has ended. A
// container asks for a resource once, so a question for the resource comes from the next container.
func (s *search) isOver(a Allocate) bool {
	if s.isWritten(a) || a.UID != "" && !s.ended && s.lacks(a.UID) {
		return true
	}
	return a.Resource == s.resource || s.shows(kubelet.Device{Resource: a.Resource, ID: a.IDs[0]})
}

// offer is the kubelet's offer as sets.
type offer struct {
	resource string
	free     map[string]bool // devices without a holder
	withheld map[string]bool
}

// newOffer returns the sets of a question's offer.
func newOffer(q *api.PreferRequest, withheld []string) offer {
	o := offer{q.GetResource(), map[string]bool{}, map[string]bool{}}
	for _, id := range q.GetAvailable() {
		o.free[id] = !slices.Contains(q.GetMustInclude(), id)
	}
	for _, id := range withheld {
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

// showsOwn reports whether List shows a recorded container with any of its devices, except those that the
// kubelet has given since: to a later pod of the name.
func (e *ended) showsOwn(h *Holder) bool {
	shown := e.Containers[h.Container()]
	return h.Pod != (kubelet.Pod{}) && h.Devices.Has(func(d kubelet.Device) bool {
		return slices.Contains(shown[d.Resource], d.ID) && !e.isGiven(d)
	})
}

// isGone reports whether a recorded container proves the end of its pod.
func (e *ended) isGone(h *Holder) bool {
	if e.isComplete() || e.isTold(h.UID) {
		return !e.isTold(h.UID) || e.comesBack(h)
	}
	if e.wasFreed(h) || e.lacks(h.UID) || h.IsShownWithout(e.View) || e.isAbsent(h) || e.hasSuccessor(h) {
		return true
	}
	return h.Devices.Has(func(d kubelet.Device) bool {
		return e.isFree(h, d) || e.isGivenAway(h, d) || e.showsElsewhere(h, d)
	})
}

// wasFreed reports whether the kubelet has freed the devices of a recorded container, by an earlier List or
// offer, and has not written its checkpoint since.
func (e *ended) wasFreed(h *Holder) bool {
	now := e.moment()
	return now != (moment{}) && e.known[h.UID].Freed == now && !e.alive[podKey(h)]
}

// learnFreed stores the pods whose devices the kubelet has freed: at the List of this search, or as its offer
// shows.
func (e *ended) learnFreed(containers []*Holder) {
	now := e.moment()
	listed, offered := e.single == nil && e.Life == now.Life, map[string]bool{}
	for _, h := range containers {
		if !listed && h.Devices.Has(func(d kubelet.Device) bool { return e.isFree(h, d) }) {
			offered[podKey(h)] = true
		}
	}
	for _, h := range containers {
		pod := podKey(h)
		if known := e.learned[h.UID]; e.gone[pod] && !e.alive[pod] && (listed || offered[pod]) {
			known.Freed = now
			e.learned[h.UID] = known
		}
	}
}

// comesBack reports whether the kubelet admits the pod of a recorded container again: a static pod whose
// manifest comes back has the same UID. Its devices are free since, in the kubelet's memory alone.
func (e *ended) comesBack(h *Holder) bool { return !e.told.Started[h.UID] && h.IsShownWithout(e.View) }

// isFree reports whether the kubelet offers a device of a recorded container, so that the pod has ended.
func (e *ended) isFree(h *Holder, d kubelet.Device) bool {
	return !e.shows(d) && d.Resource == e.resource && e.free[d.ID] && !e.alive[podKey(h)]
}

// isWithheld reports whether the kubelet withholds a device that only the pod of a recorded container can
// have: the pod has ended after the kubelet's choice of NUMA nodes for the container of the question.
func (e *ended) isWithheld(h *Holder) bool {
	return slices.ContainsFunc(h.Devices[e.resource], func(id string) bool {
		d := kubelet.Device{Resource: e.resource, ID: id}
		return e.withheld[id] && !e.shows(d) && !e.isShared(d) && !e.isGiven(d)
	})
}

// isAbsent reports whether the kubelet no longer lists the pod of a recorded container. If the pod's name is
// unknown, the container's name decides: List shows app containers of that name, or did last time, which can
// be at the container's own question. Init containers, which List does not show, seldom share a name with app
// containers.
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
		return admitted && e.isApp(h.Name) && !h.Devices.Has(e.shows)
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
	return len(e.uidsOf(h.Pod)) > 0
}
