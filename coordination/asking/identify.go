package asking

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// identify finds the container that asks. The kubelet admits one pod at a time, so that of all pods that have
// not started at most one has a container that lacks what it wants, and PodResources shows that pod already.
// Where more remain (PodResources is not read; a kubelet before 1.34, which shows a rejected pod for a moment
// longer), it matters only if they want different things. Then the kubelet's order decides: a pod that has
// arrived since the look before, or else the youngest, since a batch of new pods is admitted by age
// (HandlePodAdditions in pkg/kubelet/kubelet.go), and its containers in the order in which they are given
// devices. The API server knows pods before the kubelet does: of those the oldest comes first.
func (e *Evidence) identify(q Question, candidates []Asker) *Asker {
	if len(candidates) == 0 {
		return nil
	}
	var arrived []kubelet.Pod
	if e.View != nil && e.Partial {
		arrived = e.Seen.Arrived
	} else if e.View != nil {
		arrived = e.Seen.with(*e.View).Arrived
	}
	open := e.open()
	likeliest := slices.MinFunc(candidates, func(a, b Asker) int {
		byArrival, byAge := 0, b.Created.Compare(a.Created)
		if e.View != nil {
			byArrival = first(slices.Contains(arrived, a.Pod), slices.Contains(arrived, b.Pod))
		} else if e.Answer.Source == intent.APIServer {
			byAge = -byAge
		}
		return cmp.Or(first(a.Is(open), b.Is(open)), byArrival, byAge)
	})
	differs := func(other Asker) bool { return !sameWish(&likeliest, &other) }
	likeliest.Exact = likeliest.Is(open) && open.Exact ||
		!slices.ContainsFunc(candidates, differs) && !e.othersMayAsk(q, arrived)
	for _, candidate := range candidates {
		if !likeliest.Is(open) || candidate.Is(open) {
			likeliest.Pods = append(likeliest.Pods, candidate.Pod)
		}
	}
	return &likeliest
}

// open is who got the newest Allocate, if the kubelet's checkpoint shows that it is not done with it.
func (e *Evidence) open() *Asker {
	if e.Newest == nil || e.Progress != Open {
		return nil
	}
	return e.Newest.Asker
}

// othersMayAsk reports whether a container can be asking that is none of the candidates: one of which the API
// server has not told yet, or one that has started, and for which the kubelet's pod workers allocate anew
// since its record was lost.
func (e *Evidence) othersMayAsk(q Question, arrived []kubelet.Pod) bool {
	if len(q.MustInclude) > 0 { // it takes over from an init container of its pod
		return !slices.ContainsFunc(e.Answer.Pods, func(p intent.Pod) bool {
			return e.leaves(p, q)
		})
	}
	told := map[kubelet.Pod]bool{}
	for _, pod := range e.Answer.Pods {
		told[pod.Pod] = true
		for i, c := range pod.Containers {
			if pod.Started && c.Role != intent.Init && c.Requests[q.Resource] == q.Size &&
				len(e.has(e.askerOf(pod, i))[q.Resource]) == 0 {
				return true
			}
		}
	}
	untold := func(p kubelet.Pod) bool { return !told[p] && slices.Contains(e.View.Pods, p) }
	return e.Answer.Source == intent.APIServer && (e.View == nil || slices.ContainsFunc(arrived, untold))
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
			if len(e.has(e.askerOf(pod, i))) > 0 {
				next = i
			}
		}
		for i := next; i < len(pod.Containers); i++ {
			a := e.askerOf(pod, i)
			if a.Requests[q.Resource] == q.Size && len(e.has(a)[q.Resource]) == 0 {
				found = append(found, *a)
				break
			}
		}
	}
	return found
}

// askerOf makes an asker of a container by index.
func (e *Evidence) askerOf(pod intent.Pod, index int) *Asker {
	wants := pod.Containers[index]
	requests := maps.Clone(wants.Requests)
	maps.DeleteFunc(requests, func(name string, _ int) bool { return e.Resources[name] == nil })
	a := &Asker{
		Source: e.Answer.Source, Pod: pod.Pod, UID: pod.UID, Created: pod.Created, Alignment: pod.Alignment,
		Index: index, Name: wants.Name, Requests: requests, CPUs: wants.CPUs,
		Chosen: pod.Chosen, Remarks: pod.Remarks,
	}
	for _, c := range pod.Containers[:index] {
		a.Before, a.BeforeInit = append(a.Before, c.Name), append(a.BeforeInit, c.Role == intent.Init)
	}
	return a
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
		return e.leaves(pod, q) || len(e.Holders.Of(q.Resource, q.MustInclude[0])) == 0
	default:
		return true
	}
}

// leaves reports whether a pod has devices that the question says must be taken over.
func (e *Evidence) leaves(pod intent.Pod, q Question) bool {
	for _, h := range e.Holders.Of(q.Resource, q.MustInclude[0]) {
		if h.UID == pod.UID || h.UID == "" && (h.Pod == pod.Pod || h.Pod == (kubelet.Pod{})) {
			return true
		}
	}
	return false
}

// narrow leaves those candidates that the container can be to which the question adds by the order of the
// questions: where the checkpoint proves that, nobody asks who does not want what it has. If that container
// is none of them its devices were given to another one: that was the likeliest of several. The API server
// can still show an earlier pod of that name.
func (e *Evidence) narrow(candidates []Asker, following *Container) []Asker {
	is := func(a Asker) bool { return a.Is(following.Asker) }
	if following == nil || e.Progress != Open || slices.ContainsFunc(candidates, is) {
		return candidates
	}
	return slices.DeleteFunc(candidates, func(a Asker) bool { return !a.wantsAll(following.Devices) })
}

// has are the devices that a container has.
func (e *Evidence) has(a *Asker) kubelet.Devices {
	has := kubelet.Devices{}
	for _, h := range e.Holders {
		if a.isOf(h) {
			maps.Copy(has, e.Resources.Only(h.Devices))
		}
	}
	if e.Newest != nil && e.Newest.Asker.Is(a) {
		maps.Copy(has, e.Newest.Devices)
	}
	return has
}
