// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// record is the kubelet's checkpoint with the Allocates since.
type record struct {
	checkpoint kubelet.Checkpoint
	unreadable error   // why the checkpoint is unknown
	before     Holders // of the last search
	unlisted   Holders // of the last search
	allocates  []Allocate
	kubelet    string // that runs now; "" if unknown
}

// newRecord returns the record of sources.
func newRecord(s Sources) *record {
	r := &record{before: s.Before, unlisted: s.Unlisted, allocates: s.Allocates, kubelet: s.Life}
	r.checkpoint, r.unreadable = s.Checkpoint.Get()
	return r
}

// containers returns the recorded containers, or those of the last search if the checkpoint is unreadable.
func (r *record) containers() (all []*Holder) {
	if r.unreadable != nil {
		for _, h := range r.before {
			if h.Lost {
				continue
			}
			h.Open = false
			all = append(all, &h)
		}
		return all
	}
	for key, devices := range r.checkpoint.Containers() {
		uid, name, _ := strings.Cut(key, "/")
		all = append(all, &Holder{UID: uid, Name: name, Devices: devices, Life: r.kubelet})
	}
	slices.SortFunc(all, func(a, b *Holder) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// maxUnlisted limits the remembered containers of unlisted pods.
const maxUnlisted = 256

// lost returns the holders of the last search that the checkpoint lacks although their pods live: a kubelet
// has started since, without its records, and offers the devices of running containers. A container that
// starts again gets devices again; then the init containers of its pod have ended. Unlisted are those whose
// pods a list that may be incomplete lacks: of a container known by its Allocates alone only the list, once
// it has the pod, says whether the container runs.
func (r *record) lost(named *podNames) (all []*Holder, unlisted Holders) {
	recorded, pods := r.checkpoint.Containers(), map[string]bool{}
	for key := range recorded {
		uid, _, _ := strings.Cut(key, "/")
		pods[uid] = true
	}
	for i, h := range slices.Concat(r.unlisted, r.before) {
		isOfAnother := h.Life == "" || h.Life != r.kubelet
		isLost := h.Lost || r.unreadable == nil && isOfAnother && !r.isInAdmission(&h, named)
		_, has := recorded[h.UID+"/"+h.Name]
		switch {
		case has || h.Init && pods[h.UID]:
			continue
		case h.Open && !h.Lost && r.isUndecided(&h, i < len(r.unlisted), named):
			unlisted = append(unlisted, h)
			continue
		case !isLost:
			continue
		}
		mayReturn := h.Lost || named.untold == nil
		h.Open, h.Lost = false, true
		switch {
		case named.mayLive(h.UID):
			all = append(all, &h)
		case mayReturn && !named.isComplete():
			unlisted = append(unlisted, h)
		}
	}
	return all, unlisted[max(0, len(unlisted)-maxUnlisted):]
}

// isUndecided reports whether nothing says yet whether a container known by its Allocates alone runs: a list
// of the kubelet that has started since may come to have its pod.
func (r *record) isUndecided(h *Holder, wasUnlisted bool, named *podNames) bool {
	if named.isComplete() || named.isTold(h.UID) {
		return false
	}
	return wasUnlisted || named.untold == nil && h.UID != "" && h.Life != "" && h.Life != r.kubelet
}

// isInAdmission reports whether a container known by its Allocates alone has not started: a kubelet that has
// started since admits the pod again. Of a pod that nobody lists now, nothing but the kubelet at the Allocate
// is known.
func (r *record) isInAdmission(h *Holder, named *podNames) bool {
	isOfEarlier := named.untold != nil && h.Life != "" && r.kubelet != ""
	return h.Open && !named.told.Started[h.UID] && !isOfEarlier
}

// moment is the time between two checkpoints of a kubelet; zero if unknown.
type moment struct {
	Recorded kubelet.Identity
	Life     string
}

// moment returns the moment of the search.
func (r *record) moment() (now moment) {
	if r.kubelet != "" && r.checkpoint.Identity != (kubelet.Identity{}) {
		now = moment{r.checkpoint.Identity, r.kubelet}
	}
	return now
}

// isShared reports whether the checkpoint has a device several times.
func (r *record) isShared(d kubelet.Device) bool {
	return len(r.checkpoint.Holders(d.Resource, []string{d.ID})) > 1
}

// isGiven reports whether the kubelet has given a device to any container since the checkpoint: to the next
// container of the same pod, or to a later pod.
func (r *record) isGiven(d kubelet.Device) bool {
	return slices.ContainsFunc(r.allocates, func(a Allocate) bool {
		return a.Recorded == r.checkpoint.Identity && a.gives(d)
	})
}

// isGivenAway reports whether the kubelet has given a device of a recorded container to another pod since the
// checkpoint.
func (r *record) isGivenAway(h *Holder, d kubelet.Device) bool {
	return r.unreadable == nil && slices.ContainsFunc(r.allocates, func(a Allocate) bool {
		another := a.Anew || a.UID != "" && a.UID != h.UID
		return another && a.Recorded == r.checkpoint.Identity && a.gives(d)
	})
}

// isWritten reports whether the checkpoint was written after an Allocate. A container has all its devices
// when the kubelet writes the checkpoint.
func (r *record) isWritten(a Allocate) bool {
	return r.unreadable == nil && a.Recorded != (kubelet.Identity{}) && a.Recorded != r.checkpoint.Identity
}

// listing is an index of PodResources List.
type listing struct {
	kubelet.View
	unread  error                                // why the view is unknown
	holders map[kubelet.Device]kubelet.Container // of several the first by name
	pods    map[kubelet.Pod]bool
	apps    map[kubelet.Pod][]string // names of the pods' containers
}

// newListing returns the index of a view.
func newListing(view kubelet.Reading[kubelet.View]) *listing {
	l := &listing{
		holders: map[kubelet.Device]kubelet.Container{},
		pods:    map[kubelet.Pod]bool{}, apps: map[kubelet.Pod][]string{},
	}
	l.View, l.unread = view.Get()
	for _, pod := range l.Pods {
		l.pods[pod] = true
	}
	for c, devices := range l.Containers {
		l.apps[c.Pod] = append(l.apps[c.Pod], c.Name)
		for d := range devices.All() {
			if first, known := l.holders[d]; !known || c.String() < first.String() {
				l.holders[d] = c
			}
		}
	}
	return l
}

// shows reports whether List shows a device.
func (l *listing) shows(d kubelet.Device) bool {
	_, shown := l.holders[d]
	return shown
}

// showsElsewhere reports whether List shows a device of a recorded container with a container of another pod:
// the pods' names differ, or the pod in List has another container of the recorded name.
func (l *listing) showsElsewhere(h *Holder, d kubelet.Device) bool {
	c, shown := l.holders[d]
	if !shown || h.Pod == c.Pod {
		return false
	}
	_, namesake := l.Containers[kubelet.Container{Pod: c.Pod, Name: h.Name}]
	return h.Pod != (kubelet.Pod{}) || namesake
}

// equal reports whether two sets of devices are equal.
func equal(a, b kubelet.Devices) bool {
	return len(a) == len(b) && a.HasAll(b) && b.HasAll(a)
}

// podNames are the names of pods by UID: the checkpoint has only UIDs, List only names.
type podNames struct {
	*listing
	told    Pods             // by a request source
	untold  error            // why the told pods are unknown
	known   map[string]Known // from earlier searches
	looked  bool             // List was read before
	life    string           // of the kubelet of that List
	kubelet string           // that runs now; "" if unknown
	again   bool             // the same kubelet ran at the last search
	single  []kubelet.Pod    // the pods of a listing that is no List; nil for a List

	admitted map[string]bool                       // UIDs of pods named by an admission
	learned  map[string]Known                      // for the next search
	listed   map[kubelet.Container]kubelet.Devices // by the last List
}

// isComplete reports whether the told pods are all living pods.
func (n *podNames) isComplete() bool { return n.untold == nil && n.told.All }

// isTold reports whether a request source lists a pod.
func (n *podNames) isTold(uid string) bool {
	_, told := n.told.Names[uid]
	return told
}

// mayLive reports whether a pod without a record lives: a request source lists the pod or, while none
// answers, has listed it.
func (n *podNames) mayLive(uid string) bool {
	return n.isTold(uid) || n.untold != nil && n.known[uid].Told
}

// lacks reports whether the told pods prove that a pod has ended.
func (n *podNames) lacks(uid string) bool {
	known := n.known[uid]
	if n.again && !n.isKnown(uid) { // the kubelet has admitted the pod since the last search
		known.Admitted, known.Life = true, n.kubelet
	}
	return n.untold == nil && n.told.Lack(uid, n.kubelet, known)
}

// uidOf returns the UID of a pod, "" if unknown, also where a request source lists several pods of the name.
func (n *podNames) uidOf(pod kubelet.Pod) string {
	if uids := n.uidsOf(pod); len(uids) == 1 {
		return uids[0]
	}
	return ""
}

// uidsOf returns the UIDs of the told pods of a name.
func (n *podNames) uidsOf(pod kubelet.Pod) (uids []string) {
	for uid, name := range n.told.Names {
		if name == pod {
			uids = append(uids, uid)
		}
	}
	return uids
}

// isKnown reports whether an earlier search has seen a pod.
func (n *podNames) isKnown(uid string) bool {
	_, known := n.known[uid]
	return known
}

// isSameKubelet reports whether the kubelet of the listing has answered an earlier List, and therefore listed
// all pods of that time: any newer pod was admitted since.
func (n *podNames) isSameKubelet() bool {
	return n.unread == nil && n.single == nil && n.looked && n.life == n.Life
}

// isApp reports whether List shows a container of a name, or the List before did.
func (n *podNames) isApp(name string) bool {
	for _, containers := range []map[kubelet.Container]kubelet.Devices{n.Containers, n.listed} {
		for c := range containers {
			if c.Name == name {
				return true
			}
		}
	}
	return false
}

// assign sets the pods of recorded containers: by the request source, by an earlier search, by a container in
// List of the same name with the same devices, unless the kubelet has given these devices since, or, without
// a List, by the container's admission.
func (n *podNames) assign(containers []*Holder, since *record) {
	pods, taken := n.given()
	if !n.isComplete() {
		for _, h := range containers {
			if n.unread == nil {
				n.match(h, since, pods, taken)
			}
			if n.unread != nil || n.single != nil {
				n.matchAdmitted(h, since, pods, taken)
			}
		}
	}
	for _, h := range containers {
		if h.Pod == (kubelet.Pod{}) {
			h.Pod = pods[h.UID]
		}
	}
}

// given returns the pods by UID of the request source and of earlier searches, and the pods of the source.
func (n *podNames) given() (pods map[string]kubelet.Pod, taken map[kubelet.Pod]bool) {
	pods, taken = map[string]kubelet.Pod{}, map[kubelet.Pod]bool{}
	for uid, pod := range n.told.Names {
		pods[uid], taken[pod] = pod, true
	}
	for uid, known := range n.known {
		if pods[uid] == (kubelet.Pod{}) {
			pods[uid] = known.Pod
		}
	}
	return pods, taken
}

// match matches a recorded container with a container in List.
func (n *podNames) match(h *Holder, since *record, pods map[string]kubelet.Pod, taken map[kubelet.Pod]bool) {
	for name, ids := range h.Devices {
		if len(ids) == 0 || h.UID == "" {
			continue
		}
		c, shown := n.holders[kubelet.Device{Resource: name, ID: ids[0]}]
		if shown && c.Name == h.Name && !taken[c.Pod] && pods[h.UID] == (kubelet.Pod{}) &&
			equal(h.Devices, n.Containers[c]) && !h.Devices.Has(since.isGiven) {
			pods[h.UID], taken[c.Pod] = c.Pod, true
		}
	}
}

// matchAdmitted matches a recorded container with the one container of its name that was in admission at the
// last search with the same devices. A container of unknown name is no match: its pod was only inferred.
func (n *podNames) matchAdmitted(
	h *Holder, since *record, pods map[string]kubelet.Pod, taken map[kubelet.Pod]bool,
) {
	if since.unreadable != nil || h.UID == "" || len(h.Devices) == 0 || pods[h.UID] != (kubelet.Pod{}) {
		return
	}
	var pod kubelet.Pod
	for _, b := range since.before {
		switch {
		case !b.Open || b.Name != h.Name || !equal(b.Devices, h.Devices):
		case b.Pod == (kubelet.Pod{}) || pod != (kubelet.Pod{}) || taken[b.Pod]:
			return // ambiguous
		default:
			pod = b.Pod
		}
	}
	if pod != (kubelet.Pod{}) {
		pods[h.UID], taken[pod], n.admitted[h.UID] = pod, true, true
	}
}

// learn stores the name of a recorded container's pod.
func (n *podNames) learn(uid string, pod kubelet.Pod, alive bool) {
	if _, done := n.learned[uid]; !done && uid != "" {
		n.learned[uid] = n.next(uid, pod, alive)
	}
}

// learnTold stores the names of the request source: the names remain known when the source no longer lists a
// pod and the kubelet has written down the pod's devices.
func (n *podNames) learnTold() {
	for uid, pod := range n.told.Names {
		if _, done := n.learned[uid]; !done {
			n.learned[uid] = n.next(uid, pod, true)
		}
	}
}

// next returns the knowledge about a pod for the next search.
func (n *podNames) next(uid string, pod kubelet.Pod, alive bool) Known {
	known := n.known[uid]
	if known.Pod != pod {
		known = Known{Pod: pod}
	}
	if n.isTold(uid) {
		known.Told, known.Life = true, cmp.Or(n.kubelet, known.Life)
	}
	switch {
	case !alive:
	case n.unread == nil && n.pods[pod]:
		known.Listed, known.Life, known.Containers = true, n.Life, n.apps[pod]
	case (pod == kubelet.Pod{} && !n.isKnown(uid) || n.admitted[uid]) && n.looked &&
		(n.unread != nil || n.life == n.Life):
		known.Life, known.Admitted = n.life, true
	}
	return known
}
