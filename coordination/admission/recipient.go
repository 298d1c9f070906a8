// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// readRecipient adds requests of the node's pods to an observation of an Allocate, unless the open admission
// proves the recipient. Otherwise the kubelet may have rejected the container of the open admission, and gone
// is whether the kubelet reports no such pod. PodResources List is never read here.
func (r *reader) readRecipient(
	ctx context.Context, s *state, now time.Time, name string, ids []string, o *observation,
) (gone bool) {
	if s.open.proves(name, ids, now) {
		return false
	}
	o.answer = kubelet.Read(r.readRequests(ctx))
	return !o.answer.IsKnown() && s.open != nil && r.areGone(ctx, s.open.container.Pods)
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
