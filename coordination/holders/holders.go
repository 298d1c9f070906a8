// SPDX-License-Identifier: Apache-2.0

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
// are found by the names and devices of List. One that is not found counts as living, since its containers
// can be init containers, which List never shows. What proves that a pod is gone is a device of its own that
// the kubelet offers (all that a pod has is freed at once), or that somebody else has; and List, if the same
// kubelet has listed that pod before (Known). A kubelet that has just started takes in its pods one by one.
package holders

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Sources are the kubelet's records, and what else there is to know, at one moment.
type Sources struct {
	Recorded  *kubelet.Checkpoint // nil where it cannot be read
	View      *kubelet.View       // of List; nil where it was not read
	Single    []kubelet.Pod       // the pods that View is of, where it is no List; nil for all pods
	Pods      *Pods               // nil where no source tells
	Known     map[string]Known    // by UID: pods whose names earlier looks have told
	Before    Holders             // who held what before; it counts where Recorded is nil
	Looked    bool                // there was a List before
	Life      string              // of the kubelet that answered it
	Allocates []Allocate          // those that were seen, the oldest first
	Asked     Offer               // the question that is to be answered; the zero value is none
}

// Known is the name of a pod that the checkpoint has by its UID alone.
type Known struct {
	Pod        kubelet.Pod
	Containers []string // that List shows of it: all but init containers
	Listed     bool     // List has shown it
	Admitted   bool     // it has come since a List, which did not show its name
	Told       bool     // a list of pods has had the pod
	Life       string   // of the kubelet that did
	// UID of the pod of the same name that a source told before: while the source tells only of that pod, the
	// source is behind
	After string
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
	// those that it would offer were they free: it counts on the pods that have them, though they may have ended
	Withheld []string
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
	Init    bool // it is known to be an init container
}

// Result is what is found.
type Result struct {
	Holders   Holders
	Allocates []Allocate       // that are not over
	Known     map[string]Known // of the checkpoint's pods
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
	r := Look(s)
	return r.Holders, r.Allocates
}

// Look is Find, and says what is known of the names of pods.
func Look(s Sources) (r Result) {
	f := finder{
		Sources: s, byName: map[kubelet.Container]*Holder{}, listed: map[device]kubelet.Container{},
		offered: map[device]bool{}, pods: map[kubelet.Pod]bool{}, apps: map[kubelet.Pod][]string{},
		known: map[string]Known{}, withheld: map[string]bool{},
		alive: map[string]bool{}, after: map[string]string{},
	}
	for _, id := range s.Asked.Withheld {
		f.withheld[id] = true
	}
	for _, id := range s.Asked.Available {
		f.offered[device{s.Asked.Resource, id}] = !slices.Contains(s.Asked.MustInclude, id)
	}
	f.list()
	f.recorded()
	f.shown()
	f.learnTold()
	r.Allocates, r.Known = f.allocated(), f.known
	for _, h := range f.found {
		if len(h.Devices) > 0 {
			r.Holders = append(r.Holders, *h)
		}
	}
	return r
}

// finder is a search in progress.
type finder struct {
	Sources
	found  []*Holder
	byName map[kubelet.Container]*Holder // those whose pod is known
	listed map[device]kubelet.Container  // that List shows with a device; the first by name
	// devices that nobody has, as the kubelet offers them
	offered map[device]bool
	// of the resource that is asked for, those that are not offered and would be were they free
	withheld map[string]bool
	alive    map[string]bool          // pods of which List shows a container with devices of its own
	pods     map[kubelet.Pod]bool     // of View
	apps     map[kubelet.Pod][]string // their containers
	known    map[string]Known
	after    map[string]string // UIDs of pods that List shows, to those that a source behind the kubelet tells
}

// device is a device of a resource.
type device struct{ resource, id string }

// list takes in what List shows.
func (f *finder) list() {
	if f.View == nil {
		return
	}
	for _, pod := range f.View.Pods {
		f.pods[pod] = true
	}
	for c, devices := range f.View.Containers {
		f.apps[c.Pod] = append(f.apps[c.Pod], c.Name)
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
	all := f.entries()
	names := f.namesOf(all)
	gone := map[string]bool{}
	for _, h := range all {
		if h.Pod == (kubelet.Pod{}) {
			h.Pod = names[h.UID]
		}
		f.alive[h.pod()] = f.alive[h.pod()] || f.showsOwn(h)
	}
	for _, h := range all {
		gone[h.pod()] = gone[h.pod()] || f.isGone(h)
	}
	for _, h := range all {
		if f.isWithheld(h) {
			gone[h.pod()] = false
		}
	}
	for _, h := range all {
		f.learn(h, gone[h.pod()])
		known := f.known[h.UID]
		h.Init = h.Init || known.Listed && !slices.Contains(known.Containers, h.Name)
		if !gone[h.pod()] {
			f.add(h)
		}
	}
}

// pod tells the pod of a holder from others.
func (h *Holder) pod() string {
	if h.UID == "" && h.Pod == (kubelet.Pod{}) {
		return fmt.Sprintf("%p", h)
	}
	return h.UID + " " + h.Pod.Namespace + "/" + h.Pod.Name
}

// entries are the containers that the kubelet has written down; where that cannot be read, those that held
// something before.
func (f *finder) entries() (all []*Holder) {
	if f.Recorded == nil {
		for _, h := range f.Before {
			h.Open = false
			all = append(all, &h)
		}
		return all
	}
	for key, devices := range f.Recorded.Containers() {
		uid, name, _ := strings.Cut(key, "/")
		all = append(all, &Holder{UID: uid, Name: name, Devices: devices})
	}
	slices.SortFunc(all, func(a, b *Holder) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// learn notes the name of a recorded container's pod.
func (f *finder) learn(h *Holder, gone bool) {
	if _, done := f.known[h.UID]; !done && h.UID != "" {
		f.known[h.UID] = f.knownOf(h.UID, h.Pod, !gone)
	}
}

// learnTold notes the names that a source tells: a pod that it tells of no more is then known by its name
// when the kubelet has written down what it has.
func (f *finder) learnTold() {
	if f.Pods == nil {
		return
	}
	for uid, pod := range f.Pods.Names {
		if _, done := f.known[uid]; !done {
			f.known[uid] = f.knownOf(uid, pod, true)
		}
	}
}

// knownOf is what is known of a pod.
func (f *finder) knownOf(uid string, pod kubelet.Pod, lives bool) Known {
	known := f.Known[uid]
	if known.Pod != pod {
		known = Known{Pod: pod, After: f.after[uid]}
	}
	known.Told = known.Told || f.tells(uid)
	switch {
	case !lives:
	case f.View != nil && f.pods[pod]:
		known.Listed, known.Life, known.Containers = true, f.View.Life, f.apps[pod]
	case pod == kubelet.Pod{} && !f.wasKnown(uid) && f.Looked && (f.View == nil || f.Life == f.View.Life):
		known.Life, known.Admitted = f.Life, true
	}
	return known
}

// tells reports whether the list of pods has a pod.
func (f *finder) tells(uid string) bool {
	if f.Pods == nil {
		return false
	}
	_, told := f.Pods.Names[uid]
	return told
}

func (f *finder) wasKnown(uid string) bool {
	_, known := f.Known[uid]
	return known
}

// isSameKubelet reports whether the kubelet that shows its pods has shown them before, and so all of them: a
// pod that is new since then it has admitted.
func (f *finder) isSameKubelet() bool {
	return f.View != nil && f.Single == nil && f.Looked && f.Life == f.View.Life
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
	for uid, known := range f.Known {
		if names[uid] == (kubelet.Pod{}) {
			names[uid] = known.Pod
		}
	}
	if f.View == nil || f.Pods != nil && f.Pods.All {
		return names
	}
	for _, h := range all {
		for name, ids := range h.Devices {
			if len(ids) == 0 || h.UID == "" {
				continue
			}
			c, shown := f.listed[device{name, ids[0]}]
			before := ""
			if taken[c.Pod] {
				before = f.outdated(c.Pod, h.UID)
			}
			if shown && c.Name == h.Name && (!taken[c.Pod] || before != "") && names[h.UID] == (kubelet.Pod{}) &&
				same(h.Devices, f.View.Containers[c]) && !f.given(h) {
				names[h.UID], taken[c.Pod], f.after[h.UID] = c.Pod, true, before
			}
		}
	}
	return names
}

// outdated returns the UID that a source tells for the name of a pod, if the source is behind: the source
// told that UID before the checkpoint had the given UID for the first time. Returns "" otherwise.
func (f *finder) outdated(pod kubelet.Pod, uid string) string {
	told := f.uidOf(pod)
	if told == "" || f.Pods.All || f.wasKnown(uid) || !f.wasKnown(told) {
		return ""
	}
	return told
}

// isGone reports whether it is known that the pod of a recorded container is gone.
func (f *finder) isGone(h *Holder) bool {
	if f.Pods != nil && f.Pods.All {
		_, lives := f.Pods.Names[h.UID]
		return !lives
	}
	if f.shownWithout(h) || f.isAbsent(h) || f.hasSuccessor(h) {
		return true
	}
	for name, ids := range h.Devices {
		for _, id := range ids {
			offered := !f.shows(name, id) && f.offered[device{name, id}] && !f.alive[h.pod()]
			if offered || f.givenSince(h, name, id) ||
				f.shownOther(h, name, id) {
				return true
			}
		}
	}
	return false
}

// isWithheld reports whether the kubelet does not offer a device that nobody but the pod of a recorded
// container can have: the pod has ended after the kubelet had put the question together, and so after it had
// settled the NUMA nodes of the container that asks.
func (f *finder) isWithheld(h *Holder) bool {
	name := f.Asked.Resource
	return slices.ContainsFunc(h.Devices[name], func(id string) bool {
		if !f.withheld[id] || f.shows(name, id) || f.recordedTwice(name, id) {
			return false
		}
		return !slices.ContainsFunc(f.Allocates, func(a Allocate) bool {
			return a.Recorded == f.identity() && a.Resource == name && slices.Contains(a.IDs, id)
		})
	})
}

func (f *finder) recordedTwice(name, id string) bool {
	return f.Recorded != nil && len(f.Recorded.Holders(name, []string{id})) > 1
}

// isAbsent reports whether the kubelet does not show the pod of a recorded container any more. Where the name
// of the pod is not known, that of the container tells: it is an app container if List shows one of that
// name. Init containers, which List does not show, seldom have the name of one.
func (f *finder) isAbsent(h *Holder) bool {
	switch known := f.Known[h.UID]; {
	case f.View == nil || f.pods[h.Pod]:
		return false
	case f.Pods != nil && f.Single == nil && known.Told && !f.tells(h.UID): // both lists have lost the pod
		return true
	case f.Single != nil:
		return slices.Contains(f.Single, h.Pod)
	case h.UID == "":
		return f.isSameKubelet()
	case h.Pod != kubelet.Pod{}:
		return known.Listed && known.Pod == h.Pod && known.Life == f.View.Life
	default:
		admitted := known.Admitted && known.Life == f.View.Life || !f.wasKnown(h.UID) && f.isSameKubelet()
		return admitted && f.isApp(h.Name) && !f.showsAny(h)
	}
}

// isApp reports whether List shows a container of a name.
func (f *finder) isApp(name string) bool {
	for _, names := range f.apps {
		if slices.Contains(names, name) {
			return true
		}
	}
	return false
}

// showsOwn reports whether List shows a recorded container with any of its devices.
func (f *finder) showsOwn(h *Holder) bool {
	if f.View == nil || h.Pod == (kubelet.Pod{}) {
		return false
	}
	shown := f.View.Containers[kubelet.Container{Pod: h.Pod, Name: h.Name}]
	for name, ids := range h.Devices {
		if slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(shown[name], id) }) {
			return true
		}
	}
	return false
}

// showsAny reports whether List shows any device of a holder with a container.
func (f *finder) showsAny(h *Holder) bool {
	for name, ids := range h.Devices {
		for _, id := range ids {
			if f.shows(name, id) {
				return true
			}
		}
	}
	return false
}

// hasSuccessor reports whether a source tells of another pod of the name, and no more of that of a recorded
// container. Two pods of one name never live at the same time.
func (f *finder) hasSuccessor(h *Holder) bool {
	if f.Pods == nil || h.Pod == (kubelet.Pod{}) {
		return false
	}
	if f.tells(h.UID) {
		return false
	}
	successor := f.uidOf(h.Pod)
	return successor != "" && successor != f.after[h.UID] && successor != f.Known[h.UID].After
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

// identity is that of the checkpoint.
func (f *finder) identity() kubelet.Identity {
	if f.Recorded == nil {
		return kubelet.Identity{}
	}
	return f.Recorded.Identity
}

// given reports whether the kubelet has given anybody a device of a recorded container since it wrote the
// checkpoint: to the next container of that pod, or to the pod that came after it.
func (f *finder) given(h *Holder) bool {
	return slices.ContainsFunc(f.Allocates, func(a Allocate) bool {
		return a.Recorded == f.identity() && slices.ContainsFunc(a.IDs, func(id string) bool {
			return slices.Contains(h.Devices[a.Resource], id)
		})
	})
}

// givenSince reports whether the kubelet has given a device of a recorded container to another pod since it
// wrote the checkpoint.
func (f *finder) givenSince(h *Holder, name, id string) bool {
	return f.Recorded != nil && slices.ContainsFunc(f.Allocates, func(a Allocate) bool {
		another := a.Anew || a.UID != "" && a.UID != h.UID
		return another && a.Recorded == f.identity() && a.Resource == name && slices.Contains(a.IDs, id)
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
		case known == nil && len(devices) > 0:
			f.add(&Holder{UID: f.uidOf(c.Pod), Pod: c.Pod, Name: c.Name, Devices: devices, Open: true})
		case known != nil && !same(known.Devices, devices):
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
		if f.Recorded == nil && slices.Equal(h.Devices[a.Resource], a.IDs) {
			h.Open = true // it held them before
			return h
		}
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
