// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
)

// observation is the input of a decision, as read from the kubelet and the request sources.
type observation struct {
	asked      time.Time // time of the call
	checkpoint kubelet.Reading[kubelet.Checkpoint]
	kubelet    string                                 // identifies the running kubelet; "" if unknown
	view       kubelet.Reading[kubelet.View]          // of PodResources
	single     []kubelet.Pod                          // the pods in view, if read pod by pod
	answer     kubelet.Reading[intent.Answer]         // of a request source
	cpus       kubelet.Reading[cpus]                  // not read if irrelevant
	manager    kubelet.Reading[devicemanager.Kubelet] // not read if irrelevant
}

// recorded identifies the checkpoint; zero if unknown.
func (o *observation) recorded() kubelet.Identity {
	if checkpoint, err := o.checkpoint.Get(); err == nil {
		return checkpoint.Identity
	}
	return kubelet.Identity{}
}

// list returns the view if complete.
func (o *observation) list() (none kubelet.Reading[kubelet.View]) {
	if o.single != nil {
		return none
	}
	return o.view
}

// sources returns the input for package holders.
func (o *observation) sources(before *state, q asking.Question) holders.Sources {
	answer, err := o.answer.Get()
	sources := holders.Sources{
		View: o.view, Single: o.single, Pods: kubelet.Read(podsOf(answer), err), Known: before.known,
		Before: before.found, Looked: before.listing.Read, Life: before.listing.Life, Allocates: before.allocates,
		Kubelet: o.kubelet, Recorded: o.checkpoint,
	}
	if r := before.resources[q.Resource]; r != nil {
		sources.Question = q.Offer(r)
	}
	return sources
}

// progress returns the kubelet's progress with the open admission.
func (o *observation) progress(s *state) asking.Progress {
	return s.open.progress(o.recorded())
}

// evidence returns the input for package asking.
func (o *observation) evidence(s *state) *asking.Evidence {
	return &asking.Evidence{
		Resources: s.resources, Holders: s.found, Newest: s.open.allocated().In(o.list()),
		Recorded: o.checkpoint,
		Progress: o.progress(s), Recent: s.open.isRecent(o.asked), Late: s.open.isLate(o.asked),
		View: o.list(), Answer: o.answer, Listing: s.listing,
	}
}
