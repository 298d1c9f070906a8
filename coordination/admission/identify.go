// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// identifyRecipient returns the container of a question, with its devices so far.
func (e *evidence) identifyRecipient(q *api.PreferRequest) (recipient, knowledge) {
	following, why := e.following(q)
	isNewest := following != nil && following == e.Newest
	known := knowledge{Source: intent.Inference, Why: why}
	view, unread := e.View.Get()
	if unread == nil {
		known.Source = intent.PodResources
	}
	var c recipient
	if following != nil {
		c = following.forQuestion(q)
		following = &c
	}
	if answer, err := e.Pods.Get(); err == nil {
		asker := e.likeliest(q, e.narrow(e.candidates(q, answer), following), answer)
		if asker == nil {
			known.Why += fmt.Sprintf(" (%s shows no container that lacks %d)", answer.Source, q.GetSize())
		} else {
			c = e.containerOf(asker, following)
			known.Source, known.Why = answer.Source, c.describeState()
		}
	}
	if c.Asker == nil && isNewest && c.Owner == nil && !c.Looked {
		c.Guessed = true
	}
	c.Shown = c.Owner != nil && c.shownBy(view, *c.Owner)
	if c.Owner == nil && c.Pods == nil {
		c.Pods = e.arrived()
		if c.Asker != nil {
			c.Pods = c.Asker.Pods
		}
	}
	c.Looked = c.Looked || unread == nil || len(q.GetMustInclude()) > 0 && following == nil
	known.Asker = c.Asker
	return c, known
}

// findAsker returns the asker of an Allocate without a question; nil without a request source.
func (e *evidence) findAsker(q *api.PreferRequest) *asker {
	answer, err := e.Pods.Get()
	if err != nil {
		return nil
	}
	return e.likeliest(q, e.candidates(q, answer), answer)
}

// continued returns the container of the latest Allocate if an Allocate of a resource can continue it: the
// container is not complete, and has no devices of the resource.
func (e *evidence) continued(resource string) *recipient {
	if n := e.Newest; n != nil && e.Progress != progressComplete && n.Lacks(resource) {
		return n
	}
	return nil
}

// containerOf returns the container of an asker with its devices. Following is the container identified by
// the order of the calls, nil for none.
func (e *evidence) containerOf(asker *asker, following *recipient) recipient {
	c := recipient{Asker: asker, Pods: asker.Pods}
	if n := e.Newest; n != nil && (n.Asker.Is(asker) || following.continues(n, asker)) {
		c = *n
		c.Asker = asker
	}
	devices := kubelet.Devices{}
	maps.Copy(devices, e.Resources.Only(c.Devices))
	maps.Copy(devices, heldBy(asker, e.Holders, e.Resources))
	c.Devices, c.Inherits = devices, inheritedBy(asker, e.Holders, e.Resources)
	if view, err := e.View.Get(); err == nil && c.shownBy(view, asker.Container()) {
		shown := asker.Container()
		c.Owner = &shown
	}
	return c
}

// likeliest returns the asker among candidates. The kubelet admits one pod at a time: among all pods not
// started, at most one has a container without its devices, and PodResources shows the pod. Several
// candidates remain if PodResources was not read, or with a kubelet before 1.34, which shows a rejected pod a
// moment longer. Several candidates matter only with different requests. The order of the kubelet then
// decides:
//
//   - a pod new since the last List comes first;
//   - else the youngest pod: the kubelet admits a batch of new pods from the oldest on (HandlePodAdditions in
//     pkg/kubelet/kubelet.go), and lists each just before its admission; its containers in order of
//     allocation.
func (e *evidence) likeliest(q *api.PreferRequest, candidates []asker, answer intent.Answer) *asker {
	if len(candidates) == 0 {
		return nil
	}
	arrived := e.arrived()
	open := e.open()
	likeliest := slices.MinFunc(candidates, func(a, b asker) int {
		byArrival := compareFirst(slices.Contains(arrived, a.Pod), slices.Contains(arrived, b.Pod))
		return cmp.Or(compareFirst(a.Is(open), b.Is(open)), byArrival, b.Created.Compare(a.Created))
	})
	differs := func(candidate asker) bool { return !equalRequest(&likeliest, &candidate) }
	another := e.mayBeAnother(q, answer)
	likeliest.Exact = likeliest.Is(open) && open.Exact || !slices.ContainsFunc(candidates, differs) && !another
	for _, candidate := range candidates {
		if !likeliest.Is(open) || candidate.Is(open) {
			likeliest.Pods = append(likeliest.Pods, candidate.Pod)
		}
	}
	if !likeliest.Exact {
		likeliest.Others = alignments(candidates, another && (e.View.IsKnown() || len(q.GetMustInclude()) > 0))
	}
	return &likeliest
}

// alignments returns the alignments of candidates, without duplicates, and "" for a pod that no request
// source lists.
func alignments(candidates []asker, unlisted bool) (all []intent.Alignment) {
	if unlisted {
		all = append(all, "")
	}
	for _, candidate := range candidates {
		if !slices.Contains(all, candidate.Alignment) {
			all = append(all, candidate.Alignment)
		}
	}
	return all
}

// arrived returns the pods that arrived last, by PodResources as just read; nil if not read.
func (e *evidence) arrived() []kubelet.Pod {
	if !e.View.IsKnown() {
		return nil
	}
	return e.Listing.With(e.View).Arrived
}

// compareFirst compares two elements by a condition; true comes first.
func compareFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// candidates returns the containers compatible with a call: for each pod not started, the first container
// without the requested devices. The kubelet allocates for the containers of a pod in order, therefore a
// container with devices completes all earlier containers.
func (e *evidence) candidates(q *api.PreferRequest, answer intent.Answer) []asker {
	var found []asker
	for _, pod := range answer.Pods {
		if !e.mayBeInAdmission(pod, q) {
			continue
		}
		next, held := 0, e.heldIn(pod)
		for i, c := range pod.Containers {
			if len(held[c.Name]) > 0 {
				next = i
			}
		}
		for i, c := range pod.Containers[next:] {
			if c.Requests[q.GetResource()] == int(q.GetSize()) && len(held[c.Name][q.GetResource()]) == 0 {
				found = append(found, *newAsker(answer.Source, e.Resources, pod, next+i))
				break
			}
		}
	}
	return found
}

// mayBeInAdmission reports whether the kubelet can be admitting a pod: the pod is not started, PodResources
// shows the pod, and devices to be included belong to its init containers.
func (e *evidence) mayBeInAdmission(pod intent.Pod, q *api.PreferRequest) bool {
	view, unread := e.View.Get()
	switch {
	case pod.Started:
		return false
	case unread == nil:
		return slices.Contains(view.Pods, pod.Pod)
	default:
		of := e.inherited(q)
		return len(of) == 0 || holdsAny(of, pod)
	}
}

// inherited returns the holders of the devices that an answer has to include. Without holders, these are the
// devices on the NUMA nodes of the Topology Manager's choice, where fewer are free than requested.
func (e *evidence) inherited(q *api.PreferRequest) holders.Holders {
	if len(q.GetMustInclude()) == 0 {
		return nil
	}
	of := e.Holders.Of(q.GetResource(), q.GetMustInclude()[0])
	return slices.DeleteFunc(of, func(h holders.Holder) bool { return h.Lost }) // unknown to the kubelet
}

// holdsAny reports whether a pod is among holders.
func holdsAny(all holders.Holders, pod intent.Pod) bool {
	return slices.ContainsFunc(all, func(h holders.Holder) bool {
		return h.UID == pod.UID || h.UID == "" && (h.Pod == pod.Pod || h.Pod == (kubelet.Pod{}))
	})
}

// narrow drops candidates incompatible with the container identified by the order of the calls. While the
// checkpoint proves unfinished allocation, an asker requests all resources of the container's devices. If no
// candidate is the container itself, its devices belong to another candidate: the identification was the
// likeliest of several.
func (e *evidence) narrow(candidates []asker, following *recipient) []asker {
	is := func(a asker) bool { return a.Is(following.Asker) }
	if following == nil || e.Progress != progressOpen || slices.ContainsFunc(candidates, is) {
		return candidates
	}
	return slices.DeleteFunc(candidates, func(a asker) bool { return !a.requestsAll(following.Devices) })
}

// mayBeAnother reports whether a container besides the candidates can be the asker: a started container whose
// record the kubelet has lost, for which the kubelet's pod workers allocate again.
func (e *evidence) mayBeAnother(q *api.PreferRequest, answer intent.Answer) bool {
	if of := e.inherited(q); len(of) > 0 { // the container takes over from an init container of its pod
		return !slices.ContainsFunc(answer.Pods, func(p intent.Pod) bool { return holdsAny(of, p) })
	}
	for _, pod := range answer.Pods {
		if !pod.Started {
			continue
		}
		held := e.heldIn(pod)
		for _, c := range pod.Containers {
			if c.Role != model.Init && c.Requests[q.GetResource()] == int(q.GetSize()) &&
				len(held[c.Name][q.GetResource()]) == 0 {
				return true
			}
		}
	}
	return false
}
