// SPDX-License-Identifier: Apache-2.0

package asking

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Abandoned reports whether the kubelet has rejected the pod of the latest Allocate amid a container. The
// kubelet then leaves its checkpoint unwritten, and the checkpoint keeps showing unfinished allocation.
// PodResources and all request sources show a pod in admission.
func (e *Evidence) Abandoned() bool {
	c := e.Newest
	switch {
	case c == nil || e.Progress == Complete:
		return false
	case c.Asker == nil:
		return e.View != nil && (e.Progress == Unknown && c.Owner == nil && c.Pods == nil && !e.Recent ||
			isGone(c, *e.View, e.Listing.arrivals(*e.View)))
	case e.Answer != nil:
		return !slices.ContainsFunc(e.Answer.Pods, func(p intent.Pod) bool { return p.UID == c.Asker.UID })
	case e.View != nil:
		return !slices.ContainsFunc(c.Pods, func(p kubelet.Pod) bool { return slices.Contains(e.View.Pods, p) })
	default:
		return false
	}
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
