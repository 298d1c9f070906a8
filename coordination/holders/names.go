// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

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

	admitted map[string]bool  // UIDs of pods named by an admission
	learned  map[string]Known // for the next search
}

// isComplete reports whether the told pods are all living pods.
func (n *podNames) isComplete() bool { return n.untold == nil && n.told.All }

// isTold reports whether a request source lists a pod.
func (n *podNames) isTold(uid string) bool {
	_, told := n.told.Names[uid]
	return told
}

// lacks reports whether the told pods prove that a pod has ended.
func (n *podNames) lacks(uid string) bool {
	known := n.known[uid]
	if n.again && !n.isKnown(uid) { // the kubelet has admitted the pod since the last search
		known.Admitted, known.Life = true, n.kubelet
	}
	return n.untold == nil && n.told.Lack(uid, n.kubelet, known)
}

// uidOf returns the UID of a pod, "" if unknown.
func (n *podNames) uidOf(pod kubelet.Pod) string {
	for uid, name := range n.told.Names {
		if name == pod {
			return uid
		}
	}
	return ""
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
		c, shown := n.holders[device{name, ids[0]}]
		if shown && c.Name == h.Name && !taken[c.Pod] && pods[h.UID] == (kubelet.Pod{}) &&
			equal(h.Devices, n.Containers[c]) && !h.has(since.isGiven) {
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
