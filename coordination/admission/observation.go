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
	cpus       *cpus                                  // nil if irrelevant or unknown
	manager    kubelet.Reading[devicemanager.Kubelet] // not read if irrelevant
}

// valueOf returns what was read, nil if it is unknown.
func valueOf[T any](r kubelet.Reading[T]) *T {
	if value, err := r.Get(); err == nil {
		return &value
	}
	return nil
}

// recorded identifies the checkpoint; zero if unknown.
func (o *observation) recorded() kubelet.Identity {
	if checkpoint := valueOf(o.checkpoint); checkpoint != nil {
		return checkpoint.Identity
	}
	return kubelet.Identity{}
}

// list returns the view if complete; else nil.
func (o *observation) list() *kubelet.View {
	if o.single != nil {
		return nil
	}
	return valueOf(o.view)
}

// sources returns the input for package holders.
func (o *observation) sources(before *state, q asking.Question) holders.Sources {
	sources := holders.Sources{
		View: valueOf(o.view), Single: o.single, Pods: podsOf(valueOf(o.answer)), Known: before.known,
		Before: before.found, Looked: before.listing.Read, Life: before.listing.Life, Allocates: before.allocates,
		Kubelet: o.kubelet, Recorded: valueOf(o.checkpoint),
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
		Recorded: o.recorded() != kubelet.Identity{},
		Progress: o.progress(s), Recent: s.open.isRecent(o.asked), Late: s.open.isLate(o.asked),
		View: o.list(), Answer: valueOf(o.answer), Listing: s.listing,
	}
}
