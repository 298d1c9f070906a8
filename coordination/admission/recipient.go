// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// readRecipient adds requests of the node's pods to an observation of an Allocate if no plan names the
// recipient: the kubelet did not ask, or disregarded the answer. A plan names the recipient directly after
// the plan's question or the Allocate before; later, the kubelet may have rejected the container of the plan,
// and gone is whether the kubelet reports no such pod. PodResources List is never read here.
func (r *reader) readRecipient(
	ctx context.Context, s *state, now time.Time, name string, ids []string, o *observation,
) bool {
	p := s.plan.live(now)
	kept := p.keeps(name, ids)
	if kept && (p.resource == name || s.isRecent(now)) {
		return false
	}
	o.answer = r.readRequests(ctx)
	return kept && o.answer == nil && r.areGone(ctx, p.container.Pods)
}

// areGone reports whether the kubelet reports none of several pods.
func (r *reader) areGone(ctx context.Context, pods []kubelet.Pod) bool {
	for _, pod := range pods {
		if view, err := r.Get(ctx, pod); err != nil || len(view.Pods) > 0 {
			return false
		}
	}
	return len(pods) > 0
}
