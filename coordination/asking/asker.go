// SPDX-License-Identifier: Apache-2.0

package asking

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/resources"
)

// Asker is a container as a request source reports the container: identity and request.
type Asker struct {
	Source    intent.Source
	Pod       kubelet.Pod
	UID       string // of the pod
	Created   time.Time
	Alignment intent.Alignment // "" if the pod sets none
	Name      string
	Requests  map[string]int     // of announced resources
	CPUs      int                // exclusive CPUs requested
	Beside    []intent.Container // all containers of the pod
	// the earlier containers of the pod, and whether each is an init container
	Before     []string
	BeforeInit []bool
	// the request is certain; otherwise a container with a different request may be the asker
	Exact bool
	// the pods of all candidates, the container's own pod among them
	Pods []kubelet.Pod
	// alignments of the other candidates, without duplicates; "" if a pod sets none, or is unknown
	Others []intent.Alignment

	Chosen  []string // devices chosen by a scheduler
	Remarks []string // unreadable annotations, for people
}

// newAsker returns the asker for a container, given by index in its pod.
func newAsker(source intent.Source, set resources.Set, pod intent.Pod, index int) *Asker {
	container := pod.Containers[index]
	requests := maps.Clone(container.Requests)
	maps.DeleteFunc(requests, func(name string, _ int) bool { return set[name] == nil })
	a := &Asker{
		Source: source, Pod: pod.Pod, UID: pod.UID, Created: pod.Created, Alignment: pod.Alignment,
		Name: container.Name, Requests: requests, CPUs: container.CPUs, Beside: pod.Containers,
		Chosen: pod.Chosen, Remarks: pod.Remarks,
	}
	for _, c := range pod.Containers[:index] {
		a.Before, a.BeforeInit = append(a.Before, c.Name), append(a.BeforeInit, c.Role == intent.Init)
	}
	return a
}

// Alignments returns the alignment of each candidate, the container's own first; "" if a pod sets none.
func (a *Asker) Alignments() []intent.Alignment {
	return append([]intent.Alignment{a.Alignment}, a.Others...)
}

// Container returns the name of the container.
func (a *Asker) Container() kubelet.Container { return kubelet.Container{Pod: a.Pod, Name: a.Name} }

// Is reports whether two askers are the same container of the same pod. A nil asker equals no asker.
func (a *Asker) Is(another *Asker) bool {
	return a != nil && another != nil && a.UID == another.UID && a.Container() == another.Container()
}

// owns reports whether a holder is the container.
func (a *Asker) owns(h holders.Holder) bool {
	if h.Name != a.Name {
		return false
	}
	return h.UID == a.UID || h.UID == "" && h.Pod == a.Pod
}

// contradicts reports whether the container certainly requests a number of devices different from a question.
func (a *Asker) contradicts(q Question) bool {
	return a != nil && a.Exact && a.Requests[q.Resource] != q.Size
}

// requestsAll reports whether the container requests all resources of a set of devices.
func (a *Asker) requestsAll(devices kubelet.Devices) bool {
	for name := range devices {
		if a.Requests[name] == 0 {
			return false
		}
	}
	return true
}

// equalRequest reports whether two askers are interchangeable for a decision.
func equalRequest(a, b *Asker) bool {
	return maps.Equal(a.Requests, b.Requests) && a.Alignment == b.Alignment && slices.Equal(a.Chosen, b.Chosen)
}

// describe returns the container and its request as text.
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
