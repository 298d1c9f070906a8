package admission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// asker is the container that asks, where a source tells what the pods of the node want.
type asker struct {
	source intent.Source
	pod    intent.Pod       // without its containers, of which a pod can have thousands
	index  int              // of the container among those of its pod
	wants  intent.Container // the container, of its requests those for resources that a plugin has announced
	// what it wants is certain; else other containers that want something else may be asking
	exact bool
	pods  []kubelet.Pod // of which one is its own: that of every container that may be asking
}

func (a *asker) container() kubelet.Container {
	return kubelet.Container{Pod: a.pod.Pod, Name: a.wants.Name}
}

func (a *asker) requests() map[string]int { return a.wants.Requests }

func (a *asker) role() intent.Role { return a.wants.Role }

// lasting is what of an asker is kept with what it was given: what its annotations say is over with its
// admission.
func (a *asker) lasting() *asker {
	kept := *a
	kept.pod.Chosen, kept.pod.Remarks = nil, nil
	return &kept
}

// is reports whether two are the same container of the same pod.
func (a *asker) is(b *asker) bool {
	return a != nil && b != nil && a.pod.UID == b.pod.UID && a.container() == b.container()
}

// isOf reports whether an allocation is a container's own: PodResources shows it, or it was seen to be given.
// A pod that was created anew under its name is another one.
func (a *allocation) isOf(who *asker) bool {
	if uid := a.podUID(); uid != "" && uid != who.pod.UID {
		return false
	}
	return a.asker.is(who) || a.owner != nil && *a.owner == who.container()
}

// podUID is the UID of an allocation's pod, "" while it is not known.
func (a *allocation) podUID() string {
	if a.uid == "" && a.asker != nil && (a.owner != nil || len(a.asker.pods) == 1) {
		return a.asker.pod.UID
	}
	return a.uid
}

// describe says who asks and for what, for people.
func (a *asker) describe() string {
	var wants []string
	for _, name := range slices.Sorted(maps.Keys(a.requests())) {
		wants = append(wants, fmt.Sprintf("%d %s", a.requests()[name], name))
	}
	text := a.container().String() + " wants " + strings.Join(wants, ", ")
	if !a.exact {
		text += " (the likeliest of several containers)"
	}
	return strings.Join(append([]string{text}, a.pod.Remarks...), "; ")
}

// identify finds the container that asks. The kubelet admits one pod at a time, so that of all pods that have
// not started at most one has a container that lacks what it wants, and PodResources shows that pod already.
// Where more remain (PodResources is not read; a kubelet before 1.34, which shows a rejected pod for a moment
// longer), it matters only if they want different things. Then the kubelet's order decides: a pod that has
// arrived since the look before, or else the youngest, since a batch of new pods is admitted by age
// (HandlePodAdditions in pkg/kubelet/kubelet.go), and its containers in the order in which they are given
// devices. The API server knows pods before the kubelet does: of those the oldest comes first.
//
// Open is who got the newest Allocate, if the kubelet's checkpoint shows that it is not done with it; else
// nil.
func (l *ledger) identify(
	q question, view *kubelet.View, answer intent.Answer, candidates []asker, open *asker,
) *asker {
	if len(candidates) == 0 {
		return nil
	}
	likeliest := slices.MinFunc(candidates, func(a, b asker) int {
		byArrival, byAge := 0, b.pod.Created.Compare(a.pod.Created)
		if view != nil {
			byArrival = first(slices.Contains(l.arrived, a.pod.Pod), slices.Contains(l.arrived, b.pod.Pod))
		} else if answer.Source == intent.APIServer {
			byAge = -byAge
		}
		return cmp.Or(first(a.is(open), b.is(open)), byArrival, byAge)
	})
	differs := func(other asker) bool { return !sameWish(&likeliest, &other) }
	likeliest.exact = likeliest.is(open) && open.exact ||
		!slices.ContainsFunc(candidates, differs) && !l.othersMayAsk(q, view, answer)
	for _, candidate := range candidates {
		if !likeliest.is(open) || candidate.is(open) {
			likeliest.pods = append(likeliest.pods, candidate.pod.Pod)
		}
	}
	return &likeliest
}

// othersMayAsk reports whether a container can be asking that is none of the candidates: one of which the API
// server has not told yet, or one that has started, and for which the kubelet's pod workers allocate anew
// since its record was lost.
func (l *ledger) othersMayAsk(q question, view *kubelet.View, answer intent.Answer) bool {
	if len(q.mustInclude) > 0 { // it takes over from an init container of its pod
		held := l.holders[q.resource][q.mustInclude[0]]
		return held == nil || held.asker == nil || !held.asker.exact
	}
	told, has := map[kubelet.Pod]bool{}, map[kubelet.Container]bool{}
	for a := range l.allocations() {
		if name, known := a.containerName(); known && !a.lacks(q.resource) {
			has[name] = true
		}
	}
	for _, pod := range answer.Pods {
		told[pod.Pod] = true
		for i, c := range pod.Containers {
			name := pod.Of(i)
			shown := view != nil && len(view.Containers[name][q.resource]) > 0
			if pod.Started && c.Role != intent.Init && c.Requests[q.resource] == q.size && !has[name] && !shown {
				return true
			}
		}
	}
	untold := func(p kubelet.Pod) bool { return !told[p] && slices.Contains(view.Pods, p) }
	return answer.Source == intent.APIServer && (view == nil || slices.ContainsFunc(l.arrived, untold))
}

// containerName is the container of an allocation, false while it is not known.
func (a *allocation) containerName() (kubelet.Container, bool) {
	switch {
	case a.owner != nil:
		return *a.owner, true
	case a.asker != nil:
		return a.asker.container(), true
	default:
		return kubelet.Container{}, false
	}
}

// first compares two of which those for whom something holds come first.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// sameWish reports whether it makes no difference which of two containers asks.
func sameWish(a, b *asker) bool {
	return maps.Equal(a.requests(), b.requests()) && a.pod.Alignment == b.pod.Alignment &&
		slices.Equal(a.pod.Chosen, b.pod.Chosen)
}

// candidates lists the containers that can be asking: one for each pod that has not started, the first that
// lacks what is asked for. The kubelet gives a pod's containers their devices one after the other, so those
// before one that has some are done.
func (l *ledger) candidates(q question, view *kubelet.View, answer intent.Answer) []asker {
	var found []asker
	for _, pod := range answer.Pods {
		if !l.inAdmission(pod, q, view) {
			continue
		}
		next := 0
		for i := range pod.Containers {
			if a := l.askerOf(answer.Source, pod, i); len(l.given(&a, view)) > 0 {
				next = i
			}
		}
		for i := next; i < len(pod.Containers); i++ {
			a := l.askerOf(answer.Source, pod, i)
			if a.requests()[q.resource] == q.size && (len(q.mustInclude) > 0 || !l.given(&a, view)[q.resource]) {
				found = append(found, a)
				break
			}
		}
	}
	return found
}

// askerOf makes an asker of a container by index.
func (l *ledger) askerOf(source intent.Source, pod intent.Pod, index int) asker {
	a := asker{source: source, pod: pod, index: index, wants: pod.Containers[index]}
	a.pod.Containers = nil
	a.wants.Requests = maps.Clone(a.wants.Requests)
	maps.DeleteFunc(a.wants.Requests, func(name string, _ int) bool { return l.resources[name] == nil })
	return a
}

// inAdmission reports whether the kubelet can be admitting a pod: it has not started it, PodResources shows
// it, and devices that it must be given again are of its init containers.
func (l *ledger) inAdmission(pod intent.Pod, q question, view *kubelet.View) bool {
	switch {
	case pod.Started:
		return false
	case view != nil:
		return slices.Contains(view.Pods, pod.Pod)
	case len(q.mustInclude) > 0:
		held := l.holders[q.resource][q.mustInclude[0]]
		return held == nil || held.mayBelong(pod.Pod)
	default:
		return true
	}
}

// isOpen reports whether the kubelet's checkpoint shows that it is not done with the container of an
// allocation, the newest one.
func (d *deciding) isOpen(newest *allocation) bool { return newest != nil && d.progress == open }

// open is who got an allocation, if the kubelet is not done with it.
func (d *deciding) open(newest *allocation) *asker {
	if !d.isOpen(newest) {
		return nil
	}
	return newest.asker
}

// narrow leaves those candidates that the container of an allocation can be, to which the question adds by
// the order of the questions: where the checkpoint proves that, nobody asks who does not want what it has. If
// whoever it was given to is none of them it was given to another one: that was the likeliest of several. The
// API server can still show an earlier pod of that name.
func (d *deciding) narrow(candidates []asker, following *allocation) []asker {
	is := func(a asker) bool { return a.is(following.asker) }
	if !d.isOpen(following) || slices.ContainsFunc(candidates, is) {
		return candidates
	}
	if following.owner == nil {
		following.asker = nil
	}
	return slices.DeleteFunc(candidates, func(a asker) bool { return !a.asksForAll(following) })
}

// possible lists the pods that a container without owner can belong to: nil where nothing tells.
func (l *ledger) possible(asks *asker, view *kubelet.View) []kubelet.Pod {
	switch {
	case asks != nil:
		return asks.pods
	case view != nil:
		return slices.Clone(l.arrived)
	default:
		return nil
	}
}

// given lists the resources of which a container has devices: those that PodResources shows, and those that
// it was seen to be given, without those that its init container was. PodResources does not show init
// containers.
func (l *ledger) given(a *asker, view *kubelet.View) map[string]bool {
	given := map[string]bool{}
	if view != nil {
		for name, ids := range view.Containers[a.container()] {
			if l.resources[name] != nil && len(ids) > 0 {
				given[name] = true
			}
		}
	}
	for held := range l.allocations() {
		if held.asker.is(a) || view == nil && held.asker == nil && held.isOf(a) {
			for name := range held.devices {
				if held.newestOf(name) >= held.since {
					given[name] = true
				}
			}
		}
	}
	return given
}

// holderOf is the allocation of a container, or that of its pod's init containers, whose devices it takes
// over; a new one if there is neither. Newest is the one that the container would follow by the order of the
// questions, nil where it follows none.
func (l *ledger) holderOf(a *asker, newest *allocation) *allocation {
	var inherited *allocation
	for held := range l.allocations() {
		switch {
		case held.isOf(a):
			return held
		case held.asker != nil && held.asker.pod.UID == a.pod.UID && held.asker.role() == intent.Init &&
			held.asker.index < a.index:
			if inherited == nil || held.sequence() > inherited.sequence() {
				inherited = held
			}
		}
	}
	switch {
	case inherited != nil:
		return inherited
	case newest != nil && newest.owner == nil && newest.asker == nil && a.asksForAll(newest):
		return newest
	default:
		return &allocation{}
	}
}

// asksForAll reports whether a container asks for all the resources of which an allocation has devices.
func (a *asker) asksForAll(held *allocation) bool {
	for name := range held.devices {
		if a.requests()[name] == 0 {
			return false
		}
	}
	return true
}

// bury frees the devices of pods that a source no longer shows: the kubelet forgets them with the pod. Two
// pods of one name never live at the same time. The API server's list can be behind the kubelet's, so that it
// proves a pod gone only by another one of its name. A pod that is gone was not seen: the next one of its
// name is new.
func (l *ledger) bury(answer intent.Answer) {
	alive, named := map[string]bool{}, map[kubelet.Pod]bool{}
	for _, pod := range answer.Pods {
		alive[pod.UID], named[pod.Pod] = true, true
	}
	for a := range l.allocations() {
		uid := a.podUID()
		name, known := a.containerName()
		if uid == "" || alive[uid] || answer.Source == intent.APIServer && !(known && named[name.Pod]) {
			continue
		}
		l.forget(a)
	}
}

// forget frees the devices of a container whose pod is gone.
func (l *ledger) forget(a *allocation) {
	name, _ := a.containerName()
	l.drop(a)
	l.seen = maps.Clone(l.seen) // others see it too
	delete(l.seen, name.Pod)
}

// half says which part of a container's devices a question is for, given what it holds.
func (a *asker) half(holder *allocation) string {
	switch {
	case holder.devices == nil:
		return firstHalf
	case holder.isOf(a), holder.owner == nil && holder.asker == nil:
		return "second half"
	default:
		return takesOver
	}
}

// knowledge is what was known of who asks, and by which source, for people and records of decisions.
type knowledge struct {
	Source intent.Source
	Why    string // which half of which container is taken to be asked for
	Remark string // what came of the devices that a scheduler chose; "" where none did
	asker  *asker // nil where no source of intent told
}

// String says the source and what it told; "" where nothing was asked.
func (k knowledge) String() string {
	if k.Source == "" {
		return ""
	}
	text := string(k.Source) + ": " + k.Why
	if k.asker != nil {
		text = string(k.Source) + ": " + k.asker.describe() + ", " + k.Why
	}
	if k.Remark != "" {
		text += "; " + k.Remark
	}
	return text
}

// container is the one that asks or is given devices, nil while it is not known.
func (k knowledge) container(holder *allocation) *kubelet.Container {
	if k.asker == nil || len(k.asker.pods) > 1 {
		return holder.owner
	}
	c := k.asker.container()
	return &c
}
