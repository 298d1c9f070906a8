package asking

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
)

// heal puts back into the ledger what it lacks, however that came to be, and the kubelet's own records show
// with a pod that lives (package holders): they are read anew at every question, and what was missed once is
// known with the next one.
func (e *Evidence) heal(q Question) {
	if e.Recorded == nil {
		return
	}
	found, _ := holders.Find(holders.Sources{
		Recorded: e.Recorded, View: e.View, Pods: e.pods(), Allocates: e.unrecorded(),
		Asked: holders.Offer{Resource: q.Resource, Available: q.Available, MustInclude: q.MustInclude},
	})
	for _, h := range found {
		if h.Pod == (kubelet.Pod{}) || !e.lives(h.Pod) {
			continue
		}
		for name, ids := range h.Devices {
			for _, id := range ids {
				if e.Ledger.Resource(name) != nil && e.Ledger.Holder(name, id) == nil {
					e.Ledger.Give(e.allocationOf(h), name, id, 0)
				}
			}
		}
	}
}

// unrecorded is the newest Allocate, where the kubelet has not written its record since.
func (e *Evidence) unrecorded() (allocates []holders.Allocate) {
	if e.Progress != Open {
		return nil
	}
	for name, ids := range e.Newest {
		allocates = append(allocates, holders.Allocate{Resource: name, IDs: ids, Recorded: e.Recorded.Identity})
	}
	return allocates
}

// pods are those that the source of intent tells; nil where none does.
func (e *Evidence) pods() *holders.Pods {
	if e.Answer == nil {
		return nil
	}
	pods := &holders.Pods{Names: map[string]kubelet.Pod{}, All: e.Answer.Source != intent.APIServer}
	for _, pod := range e.Answer.Pods {
		pods.Names[pod.UID] = pod.Pod
	}
	return pods
}

// lives reports whether the kubelet tells that it has a pod: by its own list of pods, or PodResources.
func (e *Evidence) lives(pod kubelet.Pod) bool {
	return e.Answer != nil && e.Answer.Source != intent.APIServer ||
		e.View != nil && slices.Contains(e.View.Pods, pod)
}

// allocationOf is the allocation of a pod to which a container's devices are added; a new one if it has none.
func (e *Evidence) allocationOf(h holders.Holder) *ledger.Allocation {
	for _, a := range e.Ledger.Allocations() {
		if a.Owner != nil && a.Owner.Pod == h.Pod || h.UID != "" && a.PodUID() == h.UID {
			return a
		}
	}
	return &ledger.Allocation{
		UID: h.UID, Container: h.Name, Candidates: []kubelet.Pod{h.Pod}, Unasked: true, Looked: true,
	}
}
