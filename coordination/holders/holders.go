// Package holders tells who holds which device of a node, from the kubelet's own records: a pure function of
// its device checkpoint, of PodResources List, of the pods that live, and of the Allocates that were seen.
//
// # Why those
//
// The kubelet writes down who has which device; what is remembered beside it goes stale. The checkpoint has
// every container, init containers included, with its pod's UID. It is written when a container has all its
// devices, before the next container's turn, and when a plugin's device list changes. So it lacks the
// container in admission, and has pods that have ended since. List has the containers of active pods at this
// moment, init containers excepted, and no UIDs.
//
// # What counts
//
// A device is held by
//
//   - a container that the checkpoint shows with it, whose pod lives;
//   - a container that List shows with it;
//   - whom an Allocate gave it that is not over (Allocate.over).
//
// Whether a pod lives that the checkpoint shows, the list of pods says, where it is the kubelet's. Else pods
// are found by the names and devices of List, and those that are not found count as living, since they can be
// of init containers: List says nothing by what it lacks, least of all while a kubelet that has just started
// takes in its pods one by one. What proves that a pod is gone is a device of its own that the kubelet offers
// (all that a pod has is freed at once), or that somebody else has.
package holders

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Sources are the kubelet's records, and what else there is to know, at one moment.
type Sources struct {
	Recorded  *kubelet.Checkpoint // nil where it cannot be read
	View      *kubelet.View       // of List; nil where it was not read
	Pods      *Pods               // nil where no source tells
	Allocates []Allocate          // those that were seen, the oldest first
	Asked     Offer               // the question that is to be answered; the zero value is none
}

// Pods are those that live, by UID.
type Pods struct {
	Names map[string]kubelet.Pod
	// they are all that live: the list is the kubelet's own, not that of an API server, which can be behind
	All bool
}

// Offer are the devices of a resource that the kubelet offers.
type Offer struct {
	Resource    string
	Available   []string
	MustInclude []string // those that the container takes over from an init container
}

// Allocate is one that was seen.
type Allocate struct {
	Resource string
	IDs      []string
	UID      string // of the pod, "" where it was not known
	Pod      kubelet.Pod
	Name     string // of the container
	Anew     bool   // the kubelet offered the devices as free: they are not taken over from an init container
	// what the kubelet's checkpoint was then; the zero value where it could not be read
	Recorded kubelet.Identity
}

// Holder is a container with what it has. What is not known of it is "".
type Holder struct {
	UID     string
	Pod     kubelet.Pod
	Name    string
	Devices kubelet.Devices
	Open    bool // the kubelet has not written down yet that it has them: it is in admission
}

// Holders are all that hold devices.
type Holders []Holder

// Of lists those that hold a device.
func (h Holders) Of(resource, id string) (found Holders) {
	for _, holder := range h {
		if slices.Contains(holder.Devices[resource], id) {
			found = append(found, holder)
		}
	}
	return found
}

// Held are all devices of a resource that somebody holds.
func (h Holders) Held(resource string) map[string]bool {
	held := map[string]bool{}
	for _, holder := range h {
		for _, id := range holder.Devices[resource] {
			held[id] = true
		}
	}
	return held
}

// Find tells who holds what. Left are the Allocates that are not over: all that has to be remembered until
// the next time.
func Find(s Sources) (found Holders, left []Allocate) {
	f := finder{
		Sources: s, byName: map[kubelet.Container]*Holder{}, listed: map[device]kubelet.Container{},
		offered: map[device]bool{},
	}
	for _, id := range s.Asked.Available {
		f.offered[device{s.Asked.Resource, id}] = !slices.Contains(s.Asked.MustInclude, id)
	}
	f.list()
	f.recorded()
	f.shown()
	left = f.allocated()
	for _, h := range f.found {
		found = append(found, *h)
	}
	return found, left
}

// finder is a search in progress.
type finder struct {
	Sources
	found  []*Holder
	byName map[kubelet.Container]*Holder // those whose pod is known
	listed map[device]kubelet.Container  // that List shows with a device; the first by name
	// devices that nobody has, as the kubelet offers them
	offered map[device]bool
}

// device is a device of a resource.
type device struct{ resource, id string }

// list takes in what List shows.
func (f *finder) list() {
	if f.View == nil {
		return
	}
	for c, devices := range f.View.Containers {
		for name, ids := range devices {
			for _, id := range ids {
				at := device{name, id}
				if first, known := f.listed[at]; !known || c.String() < first.String() {
					f.listed[at] = c
				}
			}
		}
	}
}

// shows reports whether List shows a container with a device.
func (f *finder) shows(resource, id string) bool {
	_, shown := f.listed[device{resource, id}]
	return shown
}

func (f *finder) add(h *Holder) {
	f.found = append(f.found, h)
	if h.Pod != (kubelet.Pod{}) {
		f.byName[kubelet.Container{Pod: h.Pod, Name: h.Name}] = h
	}
}

// recorded finds the containers that the checkpoint has and whose pods are not known to be gone.
func (f *finder) recorded() {
	if f.Recorded == nil {
		return
	}
	var all []*Holder
	for key, devices := range f.Recorded.Containers() {
		uid, name, _ := strings.Cut(key, "/")
		all = append(all, &Holder{UID: uid, Name: name, Devices: devices})
	}
	slices.SortFunc(all, func(a, b *Holder) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Name, b.Name))
	})
	names := f.namesOf(all)
	gone := map[string]bool{}
	for _, h := range all {
		h.Pod = names[h.UID]
		gone[h.UID] = gone[h.UID] || f.isGone(h)
	}
	for _, h := range all {
		if !gone[h.UID] {
			f.add(h)
		}
	}
}

// namesOf are the pods of the checkpoint's containers by UID: as the list of pods has them, else those that
// List shows with a container of the same name and the same devices, unless those were given since.
func (f *finder) namesOf(all []*Holder) map[string]kubelet.Pod {
	names, taken := map[string]kubelet.Pod{}, map[kubelet.Pod]bool{}
	if f.Pods != nil {
		for uid, pod := range f.Pods.Names {
			names[uid], taken[pod] = pod, true
		}
	}
	if f.View == nil || f.Pods != nil && f.Pods.All {
		return names
	}
	for _, h := range all {
		for name, ids := range h.Devices {
			c, shown := f.listed[device{name, ids[0]}]
			if shown && c.Name == h.Name && !taken[c.Pod] && names[h.UID] == (kubelet.Pod{}) &&
				same(h.Devices, f.View.Containers[c]) && !f.given(h) {
				names[h.UID], taken[c.Pod] = c.Pod, true
			}
		}
	}
	return names
}

// isGone reports whether it is known that the pod of a recorded container is gone.
func (f *finder) isGone(h *Holder) bool {
	if f.Pods != nil && f.Pods.All {
		_, lives := f.Pods.Names[h.UID]
		return !lives
	}
	if f.shownWithout(h) {
		return true
	}
	for name, ids := range h.Devices {
		for _, id := range ids {
			if !f.shows(name, id) && f.offered[device{name, id}] || f.givenSince(h, name, id) ||
				f.shownOther(h, name, id) {
				return true
			}
		}
	}
	return false
}

// shownWithout reports whether List shows a recorded container with none of its devices: it is that of the
// pod before, of the same name.
func (f *finder) shownWithout(h *Holder) bool {
	if f.View == nil {
		return false
	}
	shown, listed := f.View.Containers[kubelet.Container{Pod: h.Pod, Name: h.Name}]
	for name, ids := range h.Devices {
		has := func(id string) bool { return slices.Contains(shown[name], id) }
		listed = listed && !slices.ContainsFunc(ids, has)
	}
	return listed
}

// given reports whether the kubelet has given anybody a device of a recorded container since it wrote the
// checkpoint: to the next container of that pod, or to the pod that came after it.
func (f *finder) given(h *Holder) bool {
	return slices.ContainsFunc(f.Allocates, func(a Allocate) bool {
		return a.Recorded == f.Recorded.Identity && slices.ContainsFunc(a.IDs, func(id string) bool {
			return slices.Contains(h.Devices[a.Resource], id)
		})
	})
}

// givenSince reports whether the kubelet has given a device of a recorded container to another pod since it
// wrote the checkpoint.
func (f *finder) givenSince(h *Holder, name, id string) bool {
	return slices.ContainsFunc(f.Allocates, func(a Allocate) bool {
		another := a.Anew || a.UID != "" && a.UID != h.UID
		return another && a.Recorded == f.Recorded.Identity && a.Resource == name && slices.Contains(a.IDs, id)
	})
}

// shownOther reports whether List shows a device of a recorded container with one that is not of its pod: in
// that pod another container has its name, or the pod is known to be another one.
func (f *finder) shownOther(h *Holder, name, id string) bool {
	c, shown := f.listed[device{name, id}]
	if !shown || h.Pod == c.Pod {
		return false
	}
	_, namesake := f.View.Containers[kubelet.Container{Pod: c.Pod, Name: h.Name}]
	return h.Pod != (kubelet.Pod{}) || namesake
}

// same reports whether two sets of devices are the same.
func same(a, b kubelet.Devices) bool {
	return len(a) == len(b) && within(a, b) && within(b, a)
}

// within reports whether all devices of a set are in another one.
func within(a, b kubelet.Devices) bool {
	for name, ids := range a {
		for _, id := range ids {
			if !slices.Contains(b[name], id) {
				return false
			}
		}
	}
	return true
}

// shown finds what List shows. What the checkpoint does not have of it is of the container in admission.
func (f *finder) shown() {
	if f.View == nil {
		return
	}
	for c, devices := range f.View.Containers {
		switch known := f.byName[c]; {
		case len(devices) == 0:
		case known == nil:
			f.add(&Holder{UID: f.uidOf(c.Pod), Pod: c.Pod, Name: c.Name, Devices: devices, Open: true})
		case !same(known.Devices, devices):
			known.Devices, known.Open = devices, true
		}
	}
}

// uidOf is the UID of a pod, "" where nothing tells it.
func (f *finder) uidOf(pod kubelet.Pod) string {
	if f.Pods != nil {
		for uid, name := range f.Pods.Names {
			if name == pod {
				return uid
			}
		}
	}
	return ""
}

// allocated finds what Allocates gave that are not over, and returns those.
func (f *finder) allocated() (left []Allocate) {
	for _, a := range f.Allocates {
		if len(a.IDs) == 0 || f.over(a) {
			continue
		}
		left = append(left, a)
		open := f.openOf(a)
		if open == nil {
			open = &Holder{UID: a.UID, Pod: a.Pod, Name: a.Name, Open: true}
			f.add(open)
		}
		devices := kubelet.Devices{}
		maps.Copy(devices, open.Devices)
		devices[a.Resource] = a.IDs
		open.Devices = devices
	}
	return left
}

// openOf is the container in admission to which an Allocate adds; nil for none that is known.
func (f *finder) openOf(a Allocate) *Holder {
	for _, h := range f.found {
		same := a.UID == "" || h.UID == a.UID && h.Name == a.Name
		if h.Open && same && len(h.Devices[a.Resource]) == 0 {
			return h
		}
	}
	return nil
}

// over reports whether an Allocate is over: the records tell of it by now, or of its end. A container has all
// its devices when the kubelet writes its checkpoint, and asks for a resource once.
func (f *finder) over(a Allocate) bool {
	if f.Recorded != nil && a.Recorded != (kubelet.Identity{}) && a.Recorded != f.Recorded.Identity {
		return true
	}
	if a.UID != "" && f.Pods != nil && f.Pods.All {
		if _, lives := f.Pods.Names[a.UID]; !lives {
			return true
		}
	}
	return a.Resource == f.Asked.Resource || f.shows(a.Resource, a.IDs[0])
}
