// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Find returns the holders, and the Allocates to remember until the next search.
func Find(s Sources) (found Holders, left []Allocate) {
	r := Look(s)
	return r.Holders, r.Allocates
}

// Look is Find, with the known names of pods.
func Look(s Sources) (r Result) {
	listed := newListing(s.View)
	recorded := newRecord(s)
	isOf := func(h Holder) bool { return h.Life == s.Kubelet }
	named := &podNames{
		listing: listed, known: s.Known, looked: s.Looked, life: s.Life, kubelet: s.Kubelet,
		single: s.Single, again: s.Kubelet != "" && slices.ContainsFunc(s.Before, isOf),
		admitted: map[string]bool{}, learned: map[string]Known{},
	}
	named.told, named.untold = s.Pods.Get()
	asked := newOffer(s.Question)
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
		record: recorded, podNames: named, resource: s.Question.Resource, ended: s.Ended,
		byName: map[kubelet.Container]*Holder{},
	}
	lost := slices.DeleteFunc(recorded.lost(named), over.hasLeft)
	f.addRecorded(slices.Concat(containers, lost), over.gone)
	f.addListed()
	named.learnTold()
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
	byName   map[kubelet.Container]*Holder // holders with a known pod
}

func (s *search) add(h *Holder) {
	s.found = append(s.found, h)
	if h.Pod != (kubelet.Pod{}) {
		s.byName[kubelet.Container{Pod: h.Pod, Name: h.Name}] = h
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
// admission.
func (s *search) addListed() {
	for c, devices := range s.Containers {
		switch known := s.byName[c]; {
		case known == nil && len(devices) > 0:
			s.add(&Holder{UID: s.uidOf(c.Pod), Pod: c.Pod, Name: c.Name, Devices: devices, Open: true})
		case known != nil && known.Lost && len(devices) == 0: // List has none of its devices
		case known != nil && !equal(known.Devices, devices):
			known.Devices, known.Open = devices, true
		}
	}
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
			open = &Holder{UID: a.UID, Pod: a.Pod, Name: a.Name, Open: true}
			s.add(open)
		}
		devices := kubelet.Devices{}
		maps.Copy(devices, open.Devices)
		devices[a.Resource] = a.IDs
		open.Devices = devices
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
		same := a.UID == "" || h.UID == a.UID && h.Name == a.Name
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
	return a.Resource == s.resource || s.shows(device{a.Resource, a.IDs[0]})
}
