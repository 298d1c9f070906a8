package asking

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
)

// Asker is the container that asks, where a source tells what the pods of the node want.
type Asker struct {
	ledger.Recipient
	CPUs int // that it wants alone
	// what its pod's annotations say, which is over with its admission
	Chosen  []string // the devices that a scheduler chose
	Remarks []string // what of the annotations could not be read, for people
}

// To is whom devices go to that are given now; nil for nobody.
func (a *Asker) To() *ledger.Recipient {
	if a == nil {
		return nil
	}
	return &a.Recipient
}

// describe says who asks and for what, for people.
func (a *Asker) describe() string {
	var wants []string
	for _, name := range slices.Sorted(maps.Keys(a.Requests)) {
		wants = append(wants, fmt.Sprintf("%d %s", a.Requests[name], name))
	}
	text := a.Container().String() + " wants " + strings.Join(wants, ", ")
	if !a.Exact {
		text += " (the likeliest of several containers)"
	}
	return strings.Join(append([]string{text}, a.Remarks...), "; ")
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
func (e *Evidence) identify(q Question, candidates []Asker, open *ledger.Recipient) *Asker {
	if len(candidates) == 0 {
		return nil
	}
	likeliest := slices.MinFunc(candidates, func(a, b Asker) int {
		byArrival, byAge := 0, b.Created.Compare(a.Created)
		if e.View != nil {
			byArrival = first(slices.Contains(e.Looked.Arrived, a.Pod), slices.Contains(e.Looked.Arrived, b.Pod))
		} else if e.Answer.Source == intent.APIServer {
			byAge = -byAge
		}
		return cmp.Or(first(a.Is(open), b.Is(open)), byArrival, byAge)
	})
	differs := func(other Asker) bool { return !sameWish(&likeliest, &other) }
	likeliest.Exact = likeliest.Is(open) && open.Exact ||
		!slices.ContainsFunc(candidates, differs) && !e.othersMayAsk(q)
	for _, candidate := range candidates {
		if !likeliest.Is(open) || candidate.Is(open) {
			likeliest.Pods = append(likeliest.Pods, candidate.Pod)
		}
	}
	return &likeliest
}

// othersMayAsk reports whether a container can be asking that is none of the candidates: one of which the API
// server has not told yet, or one that has started, and for which the kubelet's pod workers allocate anew
// since its record was lost.
func (e *Evidence) othersMayAsk(q Question) bool {
	l, view, answer := e.Ledger, e.View, e.Answer
	if len(q.MustInclude) > 0 { // it takes over from an init container of its pod
		held := l.Holder(q.Resource, q.MustInclude[0])
		return held == nil || held.Recipient == nil || !held.Recipient.Exact
	}
	told, has := map[kubelet.Pod]bool{}, map[kubelet.Container]bool{}
	for _, a := range l.Allocations() {
		if name, known := a.ContainerName(); known && !a.Lacks(q.Resource) {
			has[name] = true
		}
	}
	for _, pod := range answer.Pods {
		told[pod.Pod] = true
		for i, c := range pod.Containers {
			name := pod.Of(i)
			shown := view != nil && len(view.Containers[name][q.Resource]) > 0
			if pod.Started && c.Role != intent.Init && c.Requests[q.Resource] == q.Size && !has[name] && !shown {
				return true
			}
		}
	}
	untold := func(p kubelet.Pod) bool { return !told[p] && slices.Contains(view.Pods, p) }
	return answer.Source == intent.APIServer && (view == nil || slices.ContainsFunc(e.Looked.Arrived, untold))
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
func sameWish(a, b *Asker) bool {
	return maps.Equal(a.Requests, b.Requests) && a.Alignment == b.Alignment && slices.Equal(a.Chosen, b.Chosen)
}

// candidates lists the containers that can be asking: one for each pod that has not started, the first that
// lacks what is asked for. The kubelet gives a pod's containers their devices one after the other, so those
// before one that has some are done.
func (e *Evidence) candidates(q Question) []Asker {
	var found []Asker
	for _, pod := range e.Answer.Pods {
		if !e.inAdmission(pod, q) {
			continue
		}
		next := 0
		for i := range pod.Containers {
			if a := e.askerOf(pod, i); len(e.has(&a)) > 0 {
				next = i
			}
		}
		for i := next; i < len(pod.Containers); i++ {
			a := e.askerOf(pod, i)
			if a.Requests[q.Resource] == q.Size && (len(q.MustInclude) > 0 || !e.has(&a)[q.Resource]) {
				found = append(found, a)
				break
			}
		}
	}
	return found
}

// askerOf makes an asker of a container by index.
func (e *Evidence) askerOf(pod intent.Pod, index int) Asker {
	wants := pod.Containers[index]
	requests := maps.Clone(wants.Requests)
	maps.DeleteFunc(requests, func(name string, _ int) bool { return e.Ledger.Resource(name) == nil })
	return Asker{
		Recipient: ledger.Recipient{
			Source: e.Answer.Source, Pod: pod.Pod, UID: pod.UID, Created: pod.Created, Alignment: pod.Alignment,
			Index: index, Name: wants.Name, Role: wants.Role, Requests: requests,
		},
		CPUs: wants.CPUs, Chosen: pod.Chosen, Remarks: pod.Remarks,
	}
}

// inAdmission reports whether the kubelet can be admitting a pod: it has not started it, PodResources shows
// it, and devices that it must be given again are of its init containers.
func (e *Evidence) inAdmission(pod intent.Pod, q Question) bool {
	switch {
	case pod.Started:
		return false
	case e.View != nil:
		return slices.Contains(e.View.Pods, pod.Pod)
	case len(q.MustInclude) > 0:
		held := e.Ledger.Holder(q.Resource, q.MustInclude[0])
		if held == nil || held.PodUID() == "" {
			return held == nil || held.MayBelong(pod.Pod)
		}
		return held.PodUID() == pod.UID
	default:
		return true
	}
}

// isOpen reports whether the kubelet's checkpoint shows that it is not done with the container of an
// allocation, the newest one.
func (e *Evidence) isOpen(newest *ledger.Allocation) bool { return newest != nil && e.Progress == Open }

// open is who got an allocation, if the kubelet is not done with it.
func (e *Evidence) open(newest *ledger.Allocation) *ledger.Recipient {
	if !e.isOpen(newest) {
		return nil
	}
	return newest.Recipient
}

// narrow leaves those candidates that the container of an allocation can be, to which the question adds by
// the order of the questions: where the checkpoint proves that, nobody asks who does not want what it has. If
// whoever it was given to is none of them it was given to another one: that was the likeliest of several. The
// API server can still show an earlier pod of that name.
func (e *Evidence) narrow(candidates []Asker, following *ledger.Allocation) []Asker {
	is := func(a Asker) bool { return a.Is(following.Recipient) }
	if !e.isOpen(following) || slices.ContainsFunc(candidates, is) {
		return candidates
	}
	if following.Owner == nil {
		following.Recipient = nil
	}
	return slices.DeleteFunc(candidates, func(a Asker) bool { return !a.AsksForAll(following) })
}

// possible lists the pods that a container without owner can belong to: nil where nothing tells.
func (e *Evidence) possible(asks *Asker) []kubelet.Pod {
	switch {
	case asks != nil:
		return asks.Pods
	case e.View != nil:
		return slices.Clone(e.Looked.Arrived)
	default:
		return nil
	}
}

// has lists the resources of which a container has devices: those that PodResources shows, and those that
// it was seen to be given, without those that its init container was. PodResources does not show init
// containers.
func (e *Evidence) has(a *Asker) map[string]bool {
	l, view, has := e.Ledger, e.View, map[string]bool{}
	if view != nil {
		for name, ids := range view.Containers[a.Container()] {
			if l.Resource(name) != nil && len(ids) > 0 {
				has[name] = true
			}
		}
	}
	for _, held := range l.Allocations() {
		if held.Recipient.Is(&a.Recipient) || view == nil && held.Recipient == nil && held.IsOf(&a.Recipient) {
			for name := range held.Devices {
				if held.NewestOf(name) >= held.Since {
					has[name] = true
				}
			}
		}
	}
	return has
}
