// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// readRecipient adds requests of the node's pods to an observation of an Allocate if no plan names the
// recipient: the kubelet did not ask, or disregarded the answer. A plan names the recipient directly after
// the plan's question or the Allocate before; later, the kubelet may have rejected the container of the plan,
// and gone is whether the kubelet reports no such pod. PodResources List is never read here.
func (r *reader) readRecipient(
	ctx context.Context, s *state, now time.Time, name string, ids []string, o *observation,
) (gone bool) {
	p := s.plan.live(now)
	kept := p.keeps(name, ids)
	if kept && (p.resource == name || s.isRecent(now)) {
		return false
	}
	o.answer = r.readRequests(ctx)
	if kept && (o.answer == nil || o.answer.Source == intent.APIServer) {
		gone = r.areGone(ctx, p.container.Pods)
	}
	if o.answer != nil && o.answer.Source == intent.APIServer {
		o.view, o.single = r.readWaiting(ctx, o.answer.Pods, name, len(ids))
	}
	return gone
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

// maxWaiting limits the pods read one by one.
const maxWaiting = 4

// readWaiting reads the pods that wait for a number of devices by the API server. The kubelet accepts a pod
// just before its admission; the API server has the pod long before. Returns nil if unknown.
func (r *reader) readWaiting(
	ctx context.Context, pods []intent.Pod, name string, count int,
) (view *kubelet.View, read []kubelet.Pod) {
	var waiting []kubelet.Pod
	for _, pod := range pods {
		requests := func(c intent.Container) bool { return c.Requests[name] == count }
		if !pod.Started && slices.ContainsFunc(pod.Containers, requests) {
			waiting = append(waiting, pod.Pod)
		}
	}
	if len(waiting) > maxWaiting {
		return nil, nil
	}
	view, read = r.readPods(ctx, waiting)
	if len(read) < len(waiting) {
		return nil, nil
	}
	if view == nil {
		view, read = &kubelet.View{}, []kubelet.Pod{}
	}
	return view, read
}
