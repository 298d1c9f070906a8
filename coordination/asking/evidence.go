// SPDX-License-Identifier: Apache-2.0

package asking

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/resources"
)

// Evidence is the input of an identification.
type Evidence struct {
	Resources resources.Set
	Holders   holders.Holders
	Recorded  kubelet.Reading[kubelet.Checkpoint]
	Newest    *Container // of the latest Allocate; nil if no container can be in admission
	Progress  Progress   // of Newest
	// the question came so soon after the latest Allocate as to be the same container's
	Recent  bool
	Late    bool                           // a long time has passed since the latest call
	View    kubelet.Reading[kubelet.View]  // of PodResources
	Answer  kubelet.Reading[intent.Answer] // of a request source
	Listing Listing                        // before View
}

// open returns the asker of the latest Allocate, if the kubelet's checkpoint shows unfinished allocation.
func (e *Evidence) open() *Asker {
	if e.Newest == nil || e.Progress != Open {
		return nil
	}
	return e.Newest.Asker
}

// heldIn returns the devices of our resources that the containers of a pod hold, by container. It looks at
// each holder once: a pod can have thousands of containers.
func (e *Evidence) heldIn(pod intent.Pod) map[string]kubelet.Devices {
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
func heldBy(a *Asker, all holders.Holders, set resources.Set) kubelet.Devices {
	devices := kubelet.Devices{}
	for _, h := range all {
		if a.owns(h) {
			maps.Copy(devices, set.Only(h.Devices))
		}
	}
	return devices
}

// inheritedBy returns the devices left to an asker by earlier init containers. The kubelet passes them on to
// the next containers of the pod; an app container or a sidecar keeps them.
func inheritedBy(a *Asker, all holders.Holders, set resources.Set) kubelet.Devices {
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
