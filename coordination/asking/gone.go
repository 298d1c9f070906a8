// SPDX-License-Identifier: Apache-2.0

package asking

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// IsGone reports whether the kubelet has rejected the pod of a container in admission. The kubelet then
// leaves its checkpoint unwritten, and the checkpoint keeps showing unfinished allocation. PodResources and
// all request sources show a pod in admission.
func (e *Evidence) IsGone(c *Container) bool {
	view, unread := e.View.Get()
	answer, unknown := e.Answer.Get()
	switch {
	case c.Asker != nil && unknown == nil:
		return !slices.ContainsFunc(answer.Pods, func(p intent.Pod) bool { return p.UID == c.Asker.UID })
	case unread != nil:
		return false
	case c.Asker == nil:
		return isGone(c, view, e.Listing.arrivals(view))
	default:
		return !slices.ContainsFunc(c.Pods, func(p kubelet.Pod) bool { return slices.Contains(view.Pods, p) })
	}
}

// IsUnrelated reports whether nothing but an unwritten checkpoint relates a container to a call: neither its
// request nor its pod is known, and a long time has passed; without a checkpoint a short time suffices. The
// kubelet can have rejected the pod. PodResources does not show init containers, so an absence there proves
// nothing.
func (e *Evidence) IsUnrelated(c *Container) bool {
	return c.Asker == nil && c.Owner == nil && c.Pods == nil &&
		(e.Late || e.View.IsKnown() && e.Progress == Unknown && !e.Recent)
}

// isGone reports whether a view proves the end of a container unknown to request sources: its devices are
// gone, or pods have arrived since the last List and a candidate pod is gone.
func isGone(c *Container, view kubelet.View, arrived []kubelet.Pod) bool {
	lives := func(p kubelet.Pod) bool { return slices.Contains(view.Pods, p) }
	switch {
	case c.Owner != nil:
		return !c.shownBy(view, *c.Owner)
	case len(arrived) == 0:
		return false
	default:
		return slices.ContainsFunc(c.Pods, func(p kubelet.Pod) bool { return !lives(p) })
	}
}
