// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// asker is a container as a request source reports the container: identity and request.
type asker struct {
	Source    intent.Source
	Pod       kubelet.Pod
	UID       string           // of the pod
	Alignment intent.Alignment `json:",omitempty"` // "" if the pod sets none
	Name      string
	Requests  map[string]int // of announced resources
	// the request is certain; otherwise a container with a different request may be the asker
	Exact bool
	// the pods of all candidates, the container's own pod among them
	Pods []kubelet.Pod
	// alignments of the other candidates, without duplicates; "" if a pod sets none, or is unknown
	Others []intent.Alignment `json:"-"` // see savedAdmission

	// for the question alone, and not saved
	Created time.Time          `json:"-"`
	CPUs    int                `json:"-"` // exclusive CPUs requested
	Beside  []intent.Container `json:"-"` // all containers of the pod
	// the earlier containers of the pod, and whether each is an init container
	Before     []string `json:"-"`
	BeforeInit []bool   `json:"-"`
	Chosen     []string `json:"-"` // devices chosen by a scheduler
	Remarks    []string `json:"-"` // unreadable annotations, for people
}

// newAsker returns the asker for a container, given by index in its pod.
func newAsker(source intent.Source, set device.Resources, pod intent.Pod, index int) *asker {
	container := pod.Containers[index]
	requests := maps.Clone(container.Requests)
	maps.DeleteFunc(requests, func(name string, _ int) bool { return set[name] == nil })
	a := &asker{
		Source: source, Pod: pod.Pod, UID: pod.UID, Created: pod.Created, Alignment: pod.Alignment,
		Name: container.Name, Requests: requests, CPUs: container.CPUs, Beside: pod.Containers,
		Chosen: pod.Chosen, Remarks: pod.Remarks,
	}
	for _, c := range pod.Containers[:index] {
		a.Before, a.BeforeInit = append(a.Before, c.Name), append(a.BeforeInit, c.Role == model.Init)
	}
	return a
}

// Alignments returns the alignment of each candidate, the container's own first; "" if a pod sets none.
func (a *asker) Alignments() []intent.Alignment {
	return append([]intent.Alignment{a.Alignment}, a.Others...)
}

// Container returns the name of the container.
func (a *asker) Container() kubelet.Container { return kubelet.Container{Pod: a.Pod, Name: a.Name} }

// Is reports whether two askers are the same container of the same pod. A nil asker equals no asker.
func (a *asker) Is(another *asker) bool {
	return a != nil && another != nil && a.UID == another.UID && a.Container() == another.Container()
}

// isHolder reports whether a holder is the container.
func (a *asker) isHolder(h holders.Holder) bool {
	if h.Name != a.Name {
		return false
	}
	return h.UID == a.UID || h.UID == "" && h.Pod == a.Pod
}

// hasOtherRequest reports whether the container certainly requests a number of devices different from a
// question.
func (a *asker) hasOtherRequest(q *api.PreferRequest) bool {
	return a != nil && a.Exact && a.Requests[q.GetResource()] != int(q.GetSize())
}

// requestsAll reports whether the container requests all resources of a set of devices.
func (a *asker) requestsAll(devices kubelet.Devices) bool {
	for name := range devices {
		if a.Requests[name] == 0 {
			return false
		}
	}
	return true
}

// equalRequest reports whether two askers are interchangeable for a decision.
func equalRequest(a, b *asker) bool {
	return maps.Equal(a.Requests, b.Requests) && a.Alignment == b.Alignment && slices.Equal(a.Chosen, b.Chosen)
}

// describe returns the container and its request as text.
func (a *asker) describe() string {
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

// The states of an asking container.
const (
	firstHalf  = "first half"  // no devices yet
	secondHalf = "second half" // some devices, with more to follow
	// takesOver is the state of a container with devices of an init container of its pod: the kubelet passes
	// them on to the next container.
	takesOver = "takes over from an init container"
)

// knowledge describes the identification of an asking container, for people and for records of decisions.
type knowledge struct {
	Source intent.Source
	Why    string // the half of the container
	Remark string // use of devices chosen by a scheduler; "" for none chosen
	Asker  *asker // nil without a request source
}

// For returns the knowledge as text, for a question about a kind of devices.
func (k knowledge) For(kind device.Kind) string {
	var known []string
	if k.Asker != nil {
		known = append(known, k.Asker.describe())
	}
	known = append(known, describeOrder(kind, k.Why))
	if k.Remark != "" {
		known = append(known, k.Remark)
	}
	source := "told by " + string(k.Source)
	return shortenText(strings.Join(known, "; "), maxKnown-len(source)) + "; " + source
}

// maxKnown limits the text of a knowledge, in bytes. A pod can request any number of resources, and the text
// is stored with the decision.
const maxKnown = 512

// shortenText cuts a text longer than a number of bytes.
func shortenText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " …"
}

// describeOrder adds the order of the kubelet's calls for a container's two kinds, if known.
func describeOrder(kind device.Kind, why string) string {
	if rest, first := strings.CutPrefix(why, firstHalf); first {
		return "kubelet asked first for " + kind.Plural() + rest
	}
	if rest, second := strings.CutPrefix(why, secondHalf); second {
		return "kubelet asked for " + kind.Plural() + " after " + kind.Other().Plural() + rest
	}
	return why
}

// progress is the kubelet's progress with a container.
type progress int

// The kubelet's progress.
const (
	progressUnknown  progress = iota
	progressOpen              // the container's remaining resources come next
	progressComplete          // all resources of the container are allocated
)
