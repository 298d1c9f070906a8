package asking

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
)

// HolderOf is the allocation of a container, or that of its pod's init containers, whose devices it takes
// over; a new one if there is neither. Newest is the one that the container would follow by the order of the
// questions, nil where it follows none.
func (e *Evidence) HolderOf(a *Asker, newest *ledger.Allocation) *ledger.Allocation {
	var inherited *ledger.Allocation
	for _, held := range e.Ledger.Allocations() {
		switch to := held.Recipient; {
		case held.IsOf(&a.Recipient):
			return held
		case to != nil && to.UID == a.UID && to.Role == intent.Init && to.Index < a.Index:
			if inherited == nil || held.Sequence() > inherited.Sequence() {
				inherited = held
			}
		}
	}
	switch {
	case inherited != nil:
		return inherited
	case newest != nil && newest.Owner == nil && newest.Recipient == nil && a.AsksForAll(newest) &&
		(newest.UID == "" || newest.UID == a.UID):
		return newest
	default:
		return &ledger.Allocation{}
	}
}

// Bury frees the devices of pods that a source no longer shows: the kubelet forgets them with the pod. Two
// pods of one name never live at the same time. The API server's list can be behind the kubelet's, so that it
// proves a pod gone only by another one of its name. A pod that is gone was not seen: the next one of its
// name is new.
func (e *Evidence) Bury() {
	answer := e.Answer
	alive, named := map[string]bool{}, map[kubelet.Pod]bool{}
	for _, pod := range answer.Pods {
		alive[pod.UID], named[pod.Pod] = true, true
	}
	for _, a := range e.Ledger.Allocations() {
		uid := a.PodUID()
		name, known := a.ContainerName()
		if uid == "" || alive[uid] || answer.Source == intent.APIServer && !(known && named[name.Pod]) {
			continue
		}
		e.Forget(a)
	}
}

// GivenUp reports whether the kubelet has failed the pod of the newest Allocate amid a container: then it
// does not write its checkpoint, which goes on to show that it is not done with that container. A pod in
// admission is shown, by PodResources and by all sources but the API server, which can be behind. To is who
// got that Allocate, nil where no source told.
func (e *Evidence) GivenUp(to *ledger.Recipient) bool {
	switch {
	case to == nil || e.Progress != Open:
		return false
	case e.Answer != nil && e.Answer.Source != intent.APIServer && to.Source != intent.APIServer:
		return !slices.ContainsFunc(e.Answer.Pods, func(p intent.Pod) bool { return p.UID == to.UID })
	case e.succeeded(to):
		return true
	case e.View != nil:
		return !slices.ContainsFunc(to.Pods, func(p kubelet.Pod) bool { return slices.Contains(e.View.Pods, p) })
	default:
		return false
	}
}

// succeeded reports whether a source tells of another pod of the name, and no more of that pod.
func (e *Evidence) succeeded(to *ledger.Recipient) (another bool) {
	if e.Answer == nil {
		return false
	}
	for _, p := range e.Answer.Pods {
		if p.UID == to.UID {
			return false
		}
		another = another || p.Pod == to.Pod
	}
	return another
}

// Forget frees the devices of a container whose pod is gone.
func (e *Evidence) Forget(a *ledger.Allocation) {
	name, _ := a.ContainerName()
	e.Ledger.Drop(a)
	e.Looked.Pods = maps.Clone(e.Looked.Pods) // others see it too
	delete(e.Looked.Pods, name.Pod)
}
