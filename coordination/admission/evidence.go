// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// evidence is the input of an identification.
type evidence struct {
	Resources  device.Resources
	Holders    holders.Holders
	Checkpoint kubelet.Reading[kubelet.Checkpoint]
	Newest     *recipient // of the latest Allocate; nil if no container can be in admission
	Progress   progress   // of Newest
	// the call came so soon after the latest call as to be the same container's
	Recent  bool
	Late    bool                           // a long time has passed since the latest call
	View    kubelet.Reading[kubelet.View]  // of PodResources
	Pods    kubelet.Reading[intent.Answer] // of a request source
	Listing listing                        // before View
}

// open returns the asker of the latest Allocate, if the kubelet's checkpoint shows unfinished allocation.
func (e *evidence) open() *asker {
	if e.Newest == nil || e.Progress != progressOpen {
		return nil
	}
	return e.Newest.Asker
}

// heldIn returns the devices of our resources that the containers of a pod hold, by container. It looks at
// each holder once: a pod can have thousands of containers.
func (e *evidence) heldIn(pod intent.Pod) map[string]kubelet.Devices {
	held := map[string]kubelet.Devices{}
	add := func(name string, devices kubelet.Devices) {
		if held[name] == nil {
			held[name] = kubelet.Devices{}
		}
		maps.Copy(held[name], devices)
	}
	for _, h := range e.Holders {
		if h.UID == pod.UID || h.UID == "" && h.Pod == pod.Pod {
			add(h.Name, e.Resources.Only(h.Devices))
		}
	}
	if n := e.Newest; n != nil && n.Asker != nil && n.Asker.UID == pod.UID && n.Asker.Pod == pod.Pod {
		add(n.Asker.Name, n.Devices)
	}
	return held
}

// heldBy returns the devices of our resources held by an asker.
func heldBy(a *asker, all holders.Holders, set device.Resources) kubelet.Devices {
	devices := kubelet.Devices{}
	for _, h := range all {
		if a.isHolder(h) {
			maps.Copy(devices, set.Only(h.Devices))
		}
	}
	return devices
}

// inheritedBy returns the devices left to an asker by earlier init containers. The kubelet passes them on to
// the next containers of the pod; an app container or a sidecar keeps them.
func inheritedBy(a *asker, all holders.Holders, set device.Resources) kubelet.Devices {
	left := kubelet.Devices{}
	add := func(init bool, change func(have, ids []string) []string) {
		for _, h := range all {
			if h.UID != a.UID {
				continue
			}
			i := slices.Index(a.Before, h.Name)
			if i < 0 && h.Name != a.Name || (i >= 0 && a.BeforeInit[i]) != init {
				continue
			}
			for name, ids := range set.Only(h.Devices) {
				left[name] = change(left[name], ids)
			}
		}
	}
	add(true, union)
	add(false, subtract)
	maps.DeleteFunc(left, func(_ string, ids []string) bool { return len(ids) == 0 })
	return left
}

// union returns the elements of two lists, each once, sorted.
func union(list, add []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(list, add))))
}

// subtract returns a list without the elements of a second list.
func subtract(list, remove []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(id string) bool { return slices.Contains(remove, id) })
}

// listing is the content of the last PodResources List. A listing is immutable.
type listing struct {
	Read       bool   // List was called at least once
	Life       string // of the answering kubelet
	Pods       map[kubelet.Pod]bool
	Containers map[kubelet.Container]kubelet.Devices
	// the pods of the last List with new pods. The kubelet lists a pod from just before its admission, therefore
	// the pod in admission, or the last admitted pod, is among them
	Arrived []kubelet.Pod
}

// With returns the listing after a further List, which may be unknown.
func (l listing) With(read kubelet.Reading[kubelet.View]) listing {
	view, err := read.Get()
	if err != nil {
		return l
	}
	next := listing{true, view.Life, map[kubelet.Pod]bool{}, view.Containers, l.Arrived}
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
func (l listing) arrivals(view kubelet.View) (arrived []kubelet.Pod) {
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

// IsGone reports whether the kubelet has rejected the pod of a container in admission. The kubelet then
// leaves its checkpoint unwritten, and the checkpoint keeps showing unfinished allocation. PodResources and
// all request sources show a pod in admission.
func (e *evidence) IsGone(c *recipient) bool {
	view, unread := e.View.Get()
	answer, unknown := e.Pods.Get()
	lives := func(p kubelet.Pod) bool { return slices.Contains(view.Pods, p) }
	switch {
	case c.Asker != nil && unknown == nil:
		return !slices.ContainsFunc(answer.Pods, func(p intent.Pod) bool { return p.UID == c.Asker.UID })
	case unread != nil:
		return false
	case c.Asker != nil:
		return !slices.ContainsFunc(c.Pods, lives)
	case c.Owner != nil: // unknown to request sources: its devices are gone
		return !c.shownBy(view, *c.Owner)
	default: // pods have arrived since the last List, and a candidate pod is gone
		return len(e.Listing.arrivals(view)) > 0 &&
			slices.ContainsFunc(c.Pods, func(p kubelet.Pod) bool { return !lives(p) })
	}
}

// IsUnrelated reports whether nothing but an unwritten checkpoint relates a container to a call: its request
// is unknown, List does not show it, and a long time has passed; without a checkpoint and a candidate pod a
// short time suffices. The kubelet can have rejected the pod, and a later pod can have its name. PodResources
// does not show init containers, so an absence there proves nothing.
func (e *evidence) IsUnrelated(c *recipient) bool {
	if c.Asker != nil || c.Owner != nil {
		return false
	}
	if c.Pods != nil {
		return e.Late && e.View.IsKnown()
	}
	return e.Late || e.View.IsKnown() && e.Progress == progressUnknown && !e.Recent
}
