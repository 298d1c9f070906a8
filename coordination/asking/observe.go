package asking

import (
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
)

// FollowWindow is how soon after an Allocate the same container's next question comes: the kubelet does
// nothing slow in between (0.3 ms were measured on two busy cores), while another pod has to be set up first.
// Within it a question that a plan foresees needs no look; and it tells two containers apart
// where neither the kubelet's checkpoint nor PodResources does.
const FollowWindow = time.Millisecond

// Observe takes over what a look at PodResources shows: owners become known, what their containers no longer
// hold becomes free. It returns the pods that have come since the look before; the kubelet lists a pod from
// just before its admission, so if there are any, the container that is asking belongs to one of them.
func (e *Evidence) Observe(q Question) (arrived []kubelet.Pod) {
	arrived = e.arrivals()
	e.await(q)
	e.Ledger.Confirm(*e.View)
	e.sweep(arrived, q)
	*e.Looked = e.Looked.next(*e.View, arrived)
	return arrived
}

// await has a kubelet that has started since the last look list its pods before anything is said of those
// that it does not show, or of an allocation that can be one of theirs. A device that the kubelet offers
// tells at once that the pod which had it is gone.
func (e *Evidence) await(q Question) {
	for _, a := range e.Ledger.Allocations() {
		pods := a.Pods()
		listed := len(pods) > 0 && !slices.ContainsFunc(pods, func(p kubelet.Pod) bool {
			return !slices.Contains(e.View.Pods, p)
		})
		a.Unlisted = (a.Unlisted || e.View.Life != e.Looked.life) && !listed && !e.ended(a) &&
			!q.Offers(a)
	}
}

// ended reports whether the kubelet's own list of pods lacks that of an allocation.
func (e *Evidence) ended(a *ledger.Allocation) bool {
	uid := a.PodUID()
	if uid == "" || e.Answer == nil || e.Answer.Source == intent.APIServer {
		return false
	}
	return !slices.ContainsFunc(e.Answer.Pods, func(p intent.Pod) bool { return p.UID == uid })
}

// sweep releases what PodResources no longer shows. Devices of init containers are never shown: an allocation
// without owner stands while its pod can still be in admission, and what the app containers did not take over
// of it stays with the pod for its life. What the kubelet gave last, without a question, to a container that
// it is not done with, stands too, and so does what it withholds from the question.
func (e *Evidence) sweep(arrived []kubelet.Pod, q Question) {
	l := e.Ledger
	inAdmission := &ledger.Allocation{Unasked: true}
	for _, a := range l.Allocations() {
		if a.Unlisted {
			continue
		}
		if _, lost := e.Looked.lost(a, *e.View); !lost && (a.Owner != nil || e.mayLive(a, arrived)) {
			a.Ending, a.Doubtful = false, false
			continue
		}
		if e.withheld(a, q) {
			a.Ending = true
			continue
		}
		for name, ids := range a.Devices {
			for id, sequence := range maps.Clone(ids) {
				if sequence == l.Sequence() && e.Progress == Open && !e.Foreseen {
					l.Give(inAdmission, name, id, sequence)
				} else {
					l.Release(name, id)
				}
			}
		}
	}
}

// withheld reports whether the kubelet still counts on the container of an allocation that PodResources no
// longer shows: one that ended after the kubelet had put the question together, and so after it had settled
// the NUMA nodes of the container that asks. Then a device of it is not offered, although others beside it
// are. That is so for one question only.
func (e *Evidence) withheld(a *ledger.Allocation, q Question) bool {
	l := e.Ledger
	r := l.Resource(q.Resource)
	if a.Ending || r == nil {
		return false
	}
	offered := l.Nodes(q.Resource, q.Available)
	for id := range a.Devices[q.Resource] {
		withheld := r.Device(id)
		node, known := withheld.NUMA.Number()
		if withheld.Healthy && (!known || offered[node]) && !slices.Contains(q.Available, id) {
			return true
		}
	}
	return false
}

// mayLive reports whether an allocation that PodResources does not show can be held all the same: nothing new
// has come since it was given, or all the pods that it can belong to are still there. One of which no pod is
// known was given without a question or a look: it is an init container's of the pod in admission, or of a
// pod that is gone. If the kubelet is not done with the container it is the former.
func (e *Evidence) mayLive(a *ledger.Allocation, arrived []kubelet.Pod) bool {
	l := e.Ledger
	switch {
	case a.Candidates == nil && e.Progress == Unknown:
		return a == l.Newest() && e.Recent
	case a.Candidates == nil:
		return a == l.Newest() && (e.Progress == Open || len(arrived) == 0)
	case len(arrived) == 0:
		return true
	default:
		return !slices.ContainsFunc(a.Candidates, func(p kubelet.Pod) bool {
			return !slices.Contains(e.View.Pods, p)
		})
	}
}

// following finds the allocation to which the question adds by the order of the questions, nil where it
// starts anew; and why.
func (e *Evidence) following(q Question) (*ledger.Allocation, string) {
	l := e.Ledger
	if len(q.MustInclude) > 0 {
		if held := l.Holder(q.Resource, q.MustInclude[0]); held != nil {
			return held, TakesOver
		}
		return nil, FirstHalf
	}
	var arrived []kubelet.Pod
	if e.View != nil {
		arrived = e.Observe(q)
		e.heal(q)
	}
	newest := l.Newest()
	if e.View != nil {
		l.Settle(newest, q.Resource, *e.View, e.Recorded)
		if open := e.unwritten(q.Resource); open != nil {
			return open, SecondHalf + " of " + open.OwnerName()
		}
	}
	follows, why := e.follows(newest, q.Resource, q.Available, arrived)
	if !follows {
		return nil, why
	}
	return newest, why
}

// unwritten finds the container that lacks a resource and that PodResources shows with devices which the
// kubelet has not written down: it is the one in admission, whether or not its Allocates were heard of. Nil
// where there is none or, in the kubelet's books as they are, more than one.
func (e *Evidence) unwritten(name string) (open *ledger.Allocation) {
	if e.Recorded == nil {
		return nil
	}
	for c, devices := range e.View.Containers {
		for resource, ids := range devices {
			if e.Ledger.Resource(resource) == nil || len(ids) == 0 || e.Recorded.Has(c.Name, resource, ids) {
				continue
			}
			held := e.Ledger.Holder(resource, ids[0])
			if open != nil && held != open {
				return nil
			}
			open = held
		}
	}
	if open == nil || open.Owner == nil || len(e.View.Containers[*open.Owner][name]) > 0 {
		return nil
	}
	return open
}

// follows reports whether the container that asks for a resource is the one that was given the newest
// allocation, so that its devices are the other half of this request. The second result says why, for people.
//
// Arrived are the pods that PodResources newly showed, if it was just read.
func (e *Evidence) follows(
	newest *ledger.Allocation, name string, available []string, arrived []kubelet.Pod,
) (bool, string) {
	l := e.Ledger
	switch {
	case newest == nil:
		return false, FirstHalf
	case !newest.Lacks(name):
		return false, FirstHalf + ", the next container"
	case !l.SameNodes(newest, name, available):
		return false, FirstHalf + ", the next container, on another NUMA node"
	case e.View != nil && newest.Looked && others(newest, arrived) > 0:
		return false, FirstHalf + ", a new pod has come"
	}
	switch e.Progress {
	case Open:
		return true, SecondHalf + " of " + newest.OwnerName()
	case Complete:
		if e.View != nil && newest.Owner == nil && len(arrived) == 0 {
			return true, TakesOver // no new pod has come, so the pod's next container is asking
		}
		return false, FirstHalf + ", the next container"
	default:
		return e.guess(newest, name, available, arrived)
	}
}

// guess is follows without the kubelet's checkpoint.
func (e *Evidence) guess(
	newest *ledger.Allocation, name string, available []string, arrived []kubelet.Pod,
) (bool, string) {
	l := e.Ledger
	switch {
	case e.View == nil:
		return e.Recent, "neither checkpoint nor PodResources read, judged by time"
	case others(newest, arrived) == 0:
		return true, SecondHalf + " of " + newest.OwnerName()
	case others(newest, arrived) == len(arrived):
		return false, FirstHalf + ", a new pod has come"
	case newest.Unasked && len(l.Nodes(name, available)) > 0 && l.SameNodes(newest, name, available):
		// Both want the same nodes, and the newest allocation took all that was free there. If something is free
		// again, time has passed; if not, a new pod that asks there wants no pair, and following does it no harm.
		return !l.OthersFree(newest), "several new pods, judged by what is free"
	default:
		// Nothing was read when the newest allocation began, so the other new pods came either before it (and asked
		// for nothing) or after it (and one of them is asking).
		return e.Recent, "several new pods, judged by time"
	}
}

// others counts the newly shown pods that the allocation does not explain: its own pod is new too if nothing
// was read before its first device was given.
func others(a *ledger.Allocation, arrived []kubelet.Pod) int {
	own := 0
	switch {
	case a.Owner != nil && slices.Contains(arrived, a.Owner.Pod),
		a.Owner == nil && !a.Looked && len(arrived) > 0:
		own = 1
	}
	return len(arrived) - own
}
