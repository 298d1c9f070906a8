// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cluster/verdict"
)

// overtaken is the reason against a node on which the order of admissions decides whether all pods on their
// way will be admitted, or where there are too many orders to tell.
const overtaken = "another pod is on its way to the node, and one of the two may find its devices taken"

// ask returns the kubelet's verdict on a pod that is sent now. Pods on their way may be admitted before or
// after the pod, and before or after others end. In every order the kubelet must admit the pod, and must not
// refuse another pod because of it.
func (s *observation) ask(pod *v1.Pod) verdict.Verdict {
	v := s.after.Ask(pod)
	if v.Admitted && len(s.inFlight) > 0 && !newCourses(s, pod).wellFrom(s.before()) {
		return verdict.Verdict{Reason: overtaken}
	}
	return v
}

// byCreation sorts pods stably by the second of their creation, like the kubelet for pods that it receives
// together (HandlePodAdditions in pkg/kubelet/kubelet.go).
func byCreation(pods []*v1.Pod) []*v1.Pod {
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix())
	})
}
