// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// fate is what the kubelet reports of the candidates for the pod of the open admission.
type fate int

const (
	lives    fate = iota // all live, or nothing is known
	mayBeOut             // some are gone: the kubelet may have rejected the container
	isOut                // all are gone
)

// readRecipient adds requests of the node's pods to an observation of an Allocate, unless the open admission
// proves the recipient. Otherwise the kubelet may have rejected the container of the open admission, and the
// result is the fate of its pod. PodResources List is never read here.
func (r *reader) readRecipient(
	ctx context.Context, s *state, now time.Time, name string, ids []string, o *observation,
) fate {
	if s.open.proves(name, ids, now) {
		return lives
	}
	o.answer = kubelet.Read(r.readRequests(ctx))
	if o.answer.IsKnown() || s.open == nil {
		return lives
	}
	return r.readFate(ctx, s.open.container.Pods)
}

// readFate returns the fate of a pod with several candidates.
func (r *reader) readFate(ctx context.Context, pods []kubelet.Pod) fate {
	gone := 0
	for _, pod := range pods[:min(len(pods), getBurst)] {
		if view, err := r.Get(ctx, pod); err == nil && len(view.Pods) == 0 {
			gone++
		}
	}
	switch gone {
	case 0:
		return lives
	case len(pods):
		return isOut
	default:
		return mayBeOut
	}
}
