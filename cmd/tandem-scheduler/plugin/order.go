// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cluster/verdict"
)

// overtaken is said of a node where it depends on the order of admission whether all pods on their way to it
// will be admitted, or where they are too many to tell.
const overtaken = "another pod is on its way to the node, and one of the two may find its devices taken"

// ask is what the kubelet says to a pod that is sent now. Pods that are on their way may be admitted before
// it or after it, and before others ended or after that. Whatever comes first, the pod has to be admitted,
// and may not have another refused.
func (s *seen) ask(pod *v1.Pod) verdict.Verdict {
	v := s.after.Ask(pod)
	if v.Admitted && len(s.inFlight) > 0 && !newCourses(s, pod).wellFrom(s.before()) {
		return verdict.Verdict{Reason: overtaken}
	}
	return v
}

// byCreation has the pods by the second of their creation, and otherwise leaves them as they are. So does the
// kubelet with pods that it receives together (HandlePodAdditions in pkg/kubelet/kubelet.go).
func byCreation(pods []*v1.Pod) []*v1.Pod {
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix())
	})
}
