package asking

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
)

// Looked is what the looks at PodResources have shown.
type Looked struct {
	Pods map[kubelet.Pod]bool       // of the last one
	apps map[kubelet.Container]bool // its containers: it shows all but init containers
	// the pods that were new when last some were: one of them is, or was last, being admitted
	Arrived []kubelet.Pod
	life    string // of the kubelet that showed that
}

// next is what is known after one more look, which newly showed some pods.
func (k Looked) next(view kubelet.View, arrived []kubelet.Pod) Looked {
	next := Looked{map[kubelet.Pod]bool{}, map[kubelet.Container]bool{}, k.Arrived, view.Life}
	for _, pod := range view.Pods {
		next.Pods[pod] = true
	}
	for c := range view.Containers {
		next.apps[c] = true
	}
	if len(arrived) > 0 {
		next.Arrived = arrived
	}
	return next
}

// IsApp reports whether an allocation is known to be that of an app container. Only what an init container
// has goes to another container of its pod; what is given again was an app container's of a pod that is gone.
func (k Looked) IsApp(a *ledger.Allocation) bool {
	if a.Owner != nil {
		return true
	}
	for _, pod := range a.Candidates {
		if !k.apps[kubelet.Container{Pod: pod, Name: a.Container}] {
			return false
		}
	}
	return len(a.Candidates) > 0
}

// namesApp reports whether the last look showed an app container of a name. Init containers seldom have the
// name of one.
func (k Looked) namesApp(name string) bool {
	for c := range k.apps {
		if c.Name == name {
			return true
		}
	}
	return false
}

// lost reports whether an allocation's container is gone, and the pods that can be others of its pod's name,
// if they are shown. Running containers never lose a device, and PodResources lists every container but init
// containers, those without devices too. So where the owner is not known yet the name tells: it is an app
// container if one of that name was ever listed, unless a source has told that it is an init container.
func (k Looked) lost(a *ledger.Allocation, view kubelet.View) (renewed []kubelet.Pod, lost bool) {
	if a.Owner != nil {
		return []kubelet.Pod{a.Owner.Pod}, !a.ShownBy(view, *a.Owner)
	}
	app := k.namesApp(a.Container)
	for c := range view.Containers {
		if a.ShownBy(view, c) {
			return nil, false
		}
		app = app || c.Name == a.Container
	}
	isInit := a.Recipient != nil && a.Recipient.Exact && a.Recipient.Role == intent.Init
	return a.Candidates, app && !isInit
}

// arrivals lists the pods that the last look did not show, and those that have been deleted and created anew
// under their name.
func (e *Evidence) arrivals() []kubelet.Pod {
	renewed := map[kubelet.Pod]bool{}
	for _, a := range e.Ledger.Allocations() {
		if pods, lost := e.Looked.lost(a, *e.View); lost {
			for _, pod := range pods {
				renewed[pod] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(e.View.Pods), func(p kubelet.Pod) bool {
		return e.Looked.Pods[p] && !renewed[p]
	})
}
