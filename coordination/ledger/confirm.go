package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Confirm makes containers the owners of the devices that PodResources shows them with. Devices that were
// taken for those of another container move over.
func (l *Ledger) Confirm(view kubelet.View) {
	var holders []kubelet.Container
	for c, devices := range view.Containers {
		if len(devices) > 0 { // of many pods few have any
			holders = append(holders, c)
		}
	}
	slices.SortFunc(holders, CompareContainers)
	for _, c := range holders {
		l.confirm(c, view.Containers[c])
	}
}

// CompareContainers orders containers by name.
func CompareContainers(a, b kubelet.Container) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name),
		cmp.Compare(a.Name, b.Name))
}

func (l *Ledger) confirm(c kubelet.Container, devices kubelet.Devices) {
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
				own = &Allocation{Unasked: true}
			}
			l.Give(own, name, id, held.sequenceOf(name, id))
		}
	}
	if own != nil {
		own.Owner, own.Candidates, own.Doubtful, own.Unlisted = &c, nil, false, false
		if own.Recipient != nil && own.Recipient.Pod != c.Pod {
			own.Recipient = nil // it was the likeliest, and another one got them
		}
		l.split(own, devices)
	}
}

// split takes those devices out of a container's allocation that were given after all that PodResources shows
// it with: they were only thought to be its other half. Unshown devices given before stay: they are left over
// from its pod's init container.
func (l *Ledger) split(a *Allocation, shown kubelet.Devices) {
	newest := 0
	for name, ids := range shown {
		for _, id := range ids {
			newest = max(newest, a.sequenceOf(name, id))
		}
	}
	rest := &Allocation{Unasked: true}
	for name, ids := range a.Devices {
		for id, sequence := range maps.Clone(ids) {
			if sequence > newest {
				l.Give(rest, name, id, sequence)
			}
		}
	}
}

// ownedBy finds the allocation of a container: the one it is known to own, else the newest without owner that
// has one of its devices.
func (l *Ledger) ownedBy(c kubelet.Container, devices kubelet.Devices) *Allocation {
	var own *Allocation
	for name, ids := range devices {
		for _, id := range ids {
			a := l.holders[name][id]
			switch {
			case a == nil:
			case a.Owner != nil && *a.Owner == c:
				return a
			case a.Owner == nil && a.MayBelong(c.Pod) && (own == nil || a.Sequence() > own.Sequence()):
				own = a
			}
		}
	}
	return own
}

// Settle drops what an allocation is thought to have of a resource, and neither a view nor the kubelet's own
// record shows with its owner. The record shows what the init containers of a pod leave it, a view does not.
// It is nil where it cannot be read.
func (l *Ledger) Settle(a *Allocation, name string, view kubelet.View, recorded *kubelet.Checkpoint) {
	if a == nil || a.Owner == nil || len(view.Containers[*a.Owner][name]) > 0 {
		return
	}
	for id := range maps.Clone(a.Devices[name]) {
		if recorded == nil || !recorded.HeldBy(a.PodUID(), name, id) {
			l.Release(name, id)
		}
	}
}

// Identified lists the allocations of known pods.
func (l *Ledger) Identified() []*Allocation {
	return slices.DeleteFunc(l.Allocations(), func(a *Allocation) bool { return !a.Identified() })
}

// Owned lists the allocations of known owners.
func (l *Ledger) Owned() []*Allocation {
	return slices.DeleteFunc(l.Allocations(), func(a *Allocation) bool { return a.Owner == nil })
}

// Reconcile releases what the ledger believes to be held and the kubelet's own record shows with nobody,
// except the newest allocation, with which the kubelet may not be done, and what a view shows: that of the
// container in admission, if nobody has told of its first half. The view is nil where nothing was looked at.
// PodResources alone does not tell a pod from the one before of the same name.
func (l *Ledger) Reconcile(now kubelet.Checkpoint, view *kubelet.View) {
	newest := l.Newest()
	for _, a := range l.Allocations() {
		for name, ids := range a.Devices {
			for id := range maps.Clone(ids) {
				if a != newest && len(now.Holders(name, []string{id})) == 0 && !view.Shows(name, id) {
					l.Release(name, id)
				}
			}
		}
	}
}

// Adopt fills an empty ledger with what the kubelet's record shows as held, by containers that are not known
// yet. Some of it can be free again (the kubelet does not write that down at once): the first look at
// PodResources tells.
func (l *Ledger) Adopt(now kubelet.Checkpoint) {
	containers := now.Containers()
	for _, container := range slices.Sorted(maps.Keys(containers)) {
		uid, _, _ := strings.Cut(container, "/")
		a := &Allocation{Unasked: true, UID: uid}
		for name, ids := range containers[container] {
			for _, id := range ids {
				l.Give(a, name, id, 0)
			}
		}
	}
}
