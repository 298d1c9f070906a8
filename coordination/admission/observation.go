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
	asked         time.Time // time of the call
	checkpoint    kubelet.Checkpoint
	checkpointErr error
	kubelet       string                                 // identifies the running kubelet; "" if unknown
	view          *kubelet.View                          // nil if PodResources was unreadable, or unsafe to read
	single        []kubelet.Pod                          // the pods in view, if read pod by pod
	answer        *intent.Answer                         // nil without a request source
	cpus          *cpus                                  // nil if irrelevant or unknown
	manager       kubelet.Reading[devicemanager.Kubelet] // not read if irrelevant
}

// list returns the view if complete; else nil.
func (o *observation) list() *kubelet.View {
	if o.single != nil {
		return nil
	}
	return o.view
}

// sources returns the input for package holders.
func (o *observation) sources(before *state, q asking.Question) holders.Sources {
	sources := holders.Sources{
		View: o.view, Single: o.single, Pods: podsOf(o.answer), Known: before.known,
		Before: before.found, Looked: before.listing.Read, Life: before.listing.Life, Allocates: before.allocates,
		Kubelet: o.kubelet,
	}
	if r := before.resources[q.Resource]; r != nil {
		sources.Question = q.Offer(r)
	}
	if o.checkpointErr == nil {
		sources.Recorded = &o.checkpoint
	}
	return sources
}

// progress returns the kubelet's progress with the open admission.
func (o *observation) progress(s *state) asking.Progress {
	return s.open.progress(o.checkpoint, o.checkpointErr)
}

// evidence returns the input for package asking.
func (o *observation) evidence(s *state) *asking.Evidence {
	return &asking.Evidence{
		Resources: s.resources, Holders: s.found, Newest: s.open.allocated().In(o.list()),
		Recorded: o.checkpointErr == nil && o.checkpoint.Identity != kubelet.Identity{},
		Progress: o.progress(s), Recent: s.open.isRecent(o.asked), Late: s.open.isLate(o.asked),
		View: o.list(), Answer: o.answer, Listing: s.listing,
	}
}
