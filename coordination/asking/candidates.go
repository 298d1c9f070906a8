// SPDX-License-Identifier: Apache-2.0

package asking

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// candidates returns the containers compatible with a question: for each pod not started, the first container
// without the requested devices. The kubelet allocates for the containers of a pod in order, therefore a
// container with devices completes all earlier containers.
func (e *Evidence) candidates(q Question, answer intent.Answer) []Asker {
	var found []Asker
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
			if c.Requests[q.Resource] == q.Size && len(held[c.Name][q.Resource]) == 0 {
				found = append(found, *newAsker(answer.Source, e.Resources, pod, next+i))
				break
			}
		}
	}
	return found
}

// mayBeInAdmission reports whether the kubelet can be admitting a pod: the pod is not started, PodResources
// shows the pod, and devices to be included belong to its init containers.
func (e *Evidence) mayBeInAdmission(pod intent.Pod, q Question) bool {
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
func (e *Evidence) inherited(q Question) holders.Holders {
	if len(q.MustInclude) == 0 {
		return nil
	}
	return e.Holders.Of(q.Resource, q.MustInclude[0])
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
func (e *Evidence) narrow(candidates []Asker, following *Container) []Asker {
	is := func(a Asker) bool { return a.Is(following.Asker) }
	if following == nil || e.Progress != Open || slices.ContainsFunc(candidates, is) {
		return candidates
	}
	return slices.DeleteFunc(candidates, func(a Asker) bool { return !a.requestsAll(following.Devices) })
}

// mayBeAnother reports whether a container besides the candidates can be the asker: a started container whose
// record the kubelet has lost, for which the kubelet's pod workers allocate again.
func (e *Evidence) mayBeAnother(q Question, answer intent.Answer) bool {
	if of := e.inherited(q); len(of) > 0 { // the container takes over from an init container of its pod
		return !slices.ContainsFunc(answer.Pods, func(p intent.Pod) bool { return holdsAny(of, p) })
	}
	for _, pod := range answer.Pods {
		if !pod.Started {
			continue
		}
		held := e.heldIn(pod)
		for _, c := range pod.Containers {
			if c.Role != intent.Init && c.Requests[q.Resource] == q.Size && len(held[c.Name][q.Resource]) == 0 {
				return true
			}
		}
	}
	return false
}
