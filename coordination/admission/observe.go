package admission

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// followWindow is how soon after an Allocate the same container's next question comes: the kubelet does
// nothing slow in between (0.3 ms were measured on two busy cores), while another pod has to be set up first.
// Within it a question that the plan foresees needs no look (foresees); and it tells two containers apart
// where neither the kubelet's checkpoint nor PodResources does.
const followWindow = time.Millisecond

// observe takes over what a look at PodResources shows: owners become known, what their containers no longer
// hold becomes free. It returns the pods that have come since the look before; the kubelet lists a pod from
// just before its admission, so if there are any, the container that is asking belongs to one of them.
func (d *deciding) observe(view kubelet.View, q question) (arrived []kubelet.Pod) {
	l := d.ledger
	arrived = l.arrivals(view)
	var holders []kubelet.Container
	for c, devices := range view.Containers {
		if len(devices) > 0 { // of many pods few have any
			holders = append(holders, c)
		}
	}
	slices.SortFunc(holders, compareContainers)
	for _, c := range holders {
		l.confirm(c, view.Containers[c])
	}
	d.sweep(view, arrived, q)
	l.seen, l.apps = map[kubelet.Pod]bool{}, map[kubelet.Container]bool{}
	for _, pod := range view.Pods {
		l.seen[pod] = true
	}
	for c := range view.Containers {
		l.apps[c] = true
	}
	if len(arrived) > 0 {
		l.arrived = arrived
	}
	return arrived
}

// arrivals lists the pods that the last look did not show, and those that have been deleted and created anew
// under their name.
func (l *ledger) arrivals(view kubelet.View) []kubelet.Pod {
	renewed := map[kubelet.Pod]bool{}
	for a := range l.allocations() {
		if pods, lost := l.lost(a, view); lost {
			for _, pod := range pods {
				renewed[pod] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(view.Pods), func(p kubelet.Pod) bool {
		return l.seen[p] && !renewed[p]
	})
}

// lost reports whether an allocation's container is gone, and the pods that can be others of its pod's name,
// if they are shown. Running containers never lose a device, and PodResources lists every container but init
// containers, those without devices too. So where the owner is not known yet the name tells: it is an app
// container if one of that name was ever listed.
func (l *ledger) lost(a *allocation, view kubelet.View) (renewed []kubelet.Pod, lost bool) {
	if a.owner != nil {
		return []kubelet.Pod{a.owner.Pod}, !shows(view, *a.owner, a)
	}
	app := l.namesApp(a.container)
	for c := range view.Containers {
		if shows(view, c, a) {
			return nil, false
		}
		app = app || c.Name == a.container
	}
	return a.candidates, app
}

// namesApp reports whether the last look showed an app container of a name. Init containers seldom have the
// name of one.
func (l *ledger) namesApp(name string) bool {
	for c := range l.apps {
		if c.Name == name {
			return true
		}
	}
	return false
}

// confirm makes a container the owner of the devices that PodResources shows it with. Devices that were taken
// for those of another container move over.
func (l *ledger) confirm(c kubelet.Container, devices kubelet.Devices) {
	own := l.ownedBy(c, devices)
	for name, ids := range devices {
		if l.resources[name] == nil {
			continue // not ours
		}
		for _, id := range ids {
			held := l.holders[name][id]
			if held == own && own != nil {
				continue
			}
			if own == nil {
				own = &allocation{unasked: true}
			}
			l.give(own, name, id, held.sequenceOf(name, id))
		}
	}
	if own != nil {
		own.owner, own.candidates, own.doubtful = &c, nil, false
		if own.asker != nil && own.asker.pod.Pod != c.Pod {
			own.asker = nil // it was the likeliest, and another one got them
		}
		l.split(own, devices)
	}
}

// split takes those devices out of a container's allocation that were given after all that PodResources shows
// it with: they were only thought to be its other half. Unshown devices given before stay: they are left over
// from its pod's init container.
func (l *ledger) split(a *allocation, shown kubelet.Devices) {
	newest := 0
	for name, ids := range shown {
		for _, id := range ids {
			newest = max(newest, a.sequenceOf(name, id))
		}
	}
	rest := &allocation{unasked: true}
	for name, ids := range a.devices {
		for id, sequence := range maps.Clone(ids) {
			if sequence > newest {
				l.give(rest, name, id, sequence)
			}
		}
	}
}

// ownedBy finds the allocation of a container: the one it is known to own, else the newest without owner that
// has one of its devices.
func (l *ledger) ownedBy(c kubelet.Container, devices kubelet.Devices) *allocation {
	var own *allocation
	for name, ids := range devices {
		for _, id := range ids {
			a := l.holders[name][id]
			switch {
			case a == nil:
			case a.owner != nil && *a.owner == c:
				return a
			case a.owner == nil && a.mayBelong(c.Pod) && (own == nil || a.sequence() > own.sequence()):
				own = a
			}
		}
	}
	return own
}

// mayBelong reports whether an allocation of unknown owner can be of a pod.
func (a *allocation) mayBelong(pod kubelet.Pod) bool {
	return a.candidates == nil || slices.Contains(a.candidates, pod)
}

// sweep releases what PodResources no longer shows. Devices of init containers are never shown: an allocation
// without owner stands while its pod can still be in admission, and what the app containers did not take over
// of it stays with the pod for its life. What the kubelet gave last, without a question, to a container that
// it is not done with, stands too, and so does what it withholds from the question.
func (d *deciding) sweep(view kubelet.View, arrived []kubelet.Pod, q question) {
	l := d.ledger
	inAdmission := &allocation{unasked: true}
	for a := range l.allocations() {
		if _, lost := l.lost(a, view); !lost && (a.owner != nil || d.mayLive(a, view, arrived)) {
			a.ending, a.doubtful = false, false
			continue
		}
		if l.withheld(a, q) {
			a.ending = true
			continue
		}
		for name, ids := range a.devices {
			for id, sequence := range maps.Clone(ids) {
				if sequence == l.sequence && d.progress == open && !l.foreseen {
					l.give(inAdmission, name, id, sequence)
				} else {
					l.release(name, id)
				}
			}
		}
	}
}

// withheld reports whether the kubelet still counts on the container of an allocation that PodResources no
// longer shows: one that ended after the kubelet had put the question together, and so after it had settled
// the NUMA nodes of the container that asks. Then a device of it is not offered, although others beside it
// are. That is so for one question only.
func (l *ledger) withheld(a *allocation, q question) bool {
	r := l.resources[q.resource]
	if a.ending || r == nil {
		return false
	}
	offered := l.nodes(q.resource, q.available)
	for id := range a.devices[q.resource] {
		d := r.device(id)
		node, known := d.NUMA.Number()
		if d.Healthy && (!known || offered[node]) && !slices.Contains(q.available, id) {
			return true
		}
	}
	return false
}

// mayLive reports whether an allocation that PodResources does not show can be held all the same: nothing new
// has come since it was given, or all the pods that it can belong to are still there. One of which no pod is
// known was given without a question or a look: it is an init container's of the pod in admission, or of a
// pod that is gone. If the kubelet is not done with the container it is the former.
func (d *deciding) mayLive(a *allocation, view kubelet.View, arrived []kubelet.Pod) bool {
	l := d.ledger
	switch {
	case a.candidates == nil && d.progress == unknown:
		return a == l.newest() && l.recent(d.at)
	case a.candidates == nil:
		return a == l.newest() && (d.progress == open || len(arrived) == 0)
	case len(arrived) == 0:
		return true
	default:
		return !slices.ContainsFunc(a.candidates, func(p kubelet.Pod) bool {
			return !slices.Contains(view.Pods, p)
		})
	}
}

// recent reports whether the newest Allocate was so fresh when a question came that it can still be the same
// container's.
func (l *ledger) recent(asked time.Time) bool { return asked.Sub(l.allocated) < followWindow }

// following finds the allocation to which the question adds by the order of the questions, nil where it
// starts anew; and why.
func (d *deciding) following(q question, view *kubelet.View) (*allocation, string) {
	l := d.ledger
	if len(q.mustInclude) > 0 {
		if held := l.holders[q.resource][q.mustInclude[0]]; held != nil {
			return held, takesOver
		}
		return nil, firstHalf
	}
	var arrived []kubelet.Pod
	if view != nil {
		arrived = d.observe(*view, q)
	}
	newest := l.newest()
	if view != nil {
		l.settle(newest, q.resource, *view)
	}
	follows, why := d.follows(newest, q.resource, q.available, view != nil, arrived)
	if !follows {
		return nil, why
	}
	return newest, why
}

// firstHalf is why the asking container has no devices yet.
const firstHalf = "first half"

// takesOver is why the devices of an init container count as the asking container's: they go to the next one
// of its pod.
const takesOver = "takes over from an init container"

// follows reports whether the container that asks for a resource is the one that was given the newest
// allocation, so that its devices are the other half of this request. The second result says why, for people.
//
// looked is whether PodResources was just read, arrived the pods that it newly showed.
func (d *deciding) follows(
	newest *allocation, name string, available []string, looked bool, arrived []kubelet.Pod,
) (bool, string) {
	l := d.ledger
	switch {
	case newest == nil:
		return false, firstHalf
	case !newest.lacks(name):
		return false, "next container"
	case !l.sameNodes(newest, name, available):
		return false, "next container, on another NUMA node"
	case looked && newest.looked && newest.others(arrived) > 0:
		return false, "new pod"
	}
	switch d.progress {
	case open:
		return true, "second half of " + newest.ownerName()
	case complete:
		if looked && newest.owner == nil && len(arrived) == 0 {
			return true, takesOver // no new pod has come, so the pod's next container is asking
		}
		return false, "next container"
	default:
		return d.guess(newest, name, available, looked, arrived)
	}
}

// guess is follows without the kubelet's checkpoint.
func (d *deciding) guess(
	newest *allocation, name string, available []string, looked bool, arrived []kubelet.Pod,
) (bool, string) {
	l := d.ledger
	switch {
	case !looked:
		return l.recent(d.at), "neither checkpoint nor PodResources read, judged by time"
	case newest.others(arrived) == 0:
		return true, "second half of " + newest.ownerName()
	case newest.others(arrived) == len(arrived):
		return false, "new pod"
	case newest.unasked && l.nodesOverlap(newest, name, available):
		// Both want the same nodes, and the newest allocation took all that was free there. If something is free
		// again, time has passed; if not, a new pod that asks there wants no pair, and following does it no harm.
		return !l.othersFree(newest), "several new pods, judged by what is free"
	default:
		// Nothing was read when the newest allocation began, so the other new pods came either before it (and asked
		// for nothing) or after it (and one of them is asking).
		return l.recent(d.at), "several new pods, judged by time"
	}
}

// others counts the newly shown pods that the allocation does not explain: its own pod is new too if nothing
// was read before its first device was given.
func (a *allocation) others(arrived []kubelet.Pod) int {
	own := 0
	switch {
	case a.owner != nil && slices.Contains(arrived, a.owner.Pod),
		a.owner == nil && !a.looked && len(arrived) > 0:
		own = 1
	}
	return len(arrived) - own
}

// nodesOverlap reports whether devices are known to be on a NUMA node of an allocation.
func (l *ledger) nodesOverlap(a *allocation, name string, ids []string) bool {
	return len(l.nodes(name, ids)) > 0 && l.sameNodes(a, name, ids)
}

// othersFree reports whether more devices of an allocation's resources are free on its NUMA nodes.
func (l *ledger) othersFree(a *allocation) bool {
	for name, held := range a.devices {
		nodes := l.nodes(name, slices.Collect(maps.Keys(held)))
		for _, d := range l.free(l.resources[name]) {
			if n, known := d.NUMA.Number(); known && nodes[n] {
				return true
			}
		}
	}
	return false
}

// settle drops what an allocation is thought to have of a resource and its owner is not shown with, when the
// owner may be asking for it: a container that took devices over from an init container is asked with
// must-include devices instead.
func (l *ledger) settle(a *allocation, name string, view kubelet.View) {
	if a == nil || a.owner == nil || len(view.Containers[*a.owner][name]) > 0 {
		return
	}
	for id := range maps.Clone(a.devices[name]) {
		l.release(name, id)
	}
}

// ownerName names the container of an allocation, for people.
func (a *allocation) ownerName() string {
	switch {
	case a.owner != nil:
		return a.owner.String()
	case a.asker != nil:
		return a.asker.container().String()
	case len(a.candidates) == 1:
		return "a container of " + a.candidates[0].Namespace + "/" + a.candidates[0].Name
	default:
		return "an init container"
	}
}

// sequenceOf is that of one device of an allocation, 0 where there is none: it was given before we watched.
func (a *allocation) sequenceOf(name, id string) int {
	if a == nil {
		return 0
	}
	return a.devices[name][id]
}

// shows reports whether a view has a container with at least one device of an allocation.
func shows(view kubelet.View, c kubelet.Container, a *allocation) bool {
	for name, ids := range view.Containers[c] {
		for _, id := range ids {
			if _, ok := a.devices[name][id]; ok {
				return true
			}
		}
	}
	return false
}

func compareContainers(a, b kubelet.Container) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name),
		cmp.Compare(a.Name, b.Name))
}
