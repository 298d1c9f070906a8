package plugin

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cluster/verdict"
)

// overtaken is said of a node where it depends on the order of admission whether all pods on their way to it
// will be admitted.
const overtaken = "another pod is on its way to the node, and one of the two may find its devices taken"

// ask is what the kubelet says to a pod that is sent now. Pods that are on their way may be admitted before
// it or after it, and before others ended or after that. Whatever comes first, the pod has to be admitted,
// and may not have another refused.
func (s *seen) ask(pod *v1.Pod) verdict.Verdict {
	v := s.after.Ask(pod)
	if v.Admitted && len(s.inFlight) > 0 && !s.admits(pod) {
		return verdict.Verdict{Reason: overtaken}
	}
	return v
}

// admits goes through all courses, or through some where they are too many.
func (s *seen) admits(pod *v1.Pod) bool {
	bound := append(slices.Clone(s.inFlight), pod)
	c := courses{pod: pod, steps: slices.Concat(ends(s.gone), admissions(bound)), visited: map[string]bool{}}
	begin := course{without: s.before()}
	if len(c.steps) <= stepsTried(begin) {
		return c.admit(0, begin)
	}
	for _, order := range s.orders(bound) {
		if !c.follow(order, begin) {
			return false
		}
	}
	return true
}

// stepsTried is how many steps are tried in every order. Where equal states are seen to be equal there are
// 2^steps of them or a few times as many, else as many as orders.
func stepsTried(begin course) int {
	if begin.without.Same() == "" {
		return 4
	}
	return 8
}

// orders are the likeliest ones. A kubelet receives pods in the order in which they were bound, and takes
// those that it receives together by the time of their creation, those of one second as it happens
// (HandlePodAdditions in pkg/kubelet/kubelet.go): as bound, by creation, and with those of one second the
// other way round. Others have ended before all that, or before the last one was bound.
func (s *seen) orders(bound []*v1.Pod) (all [][]step) {
	gone := ends(s.gone)
	reversed := slices.Clone(bound)
	slices.Reverse(reversed)
	for _, order := range [][]*v1.Pod{bound, byCreation(bound), byCreation(reversed)} {
		all = append(all, slices.Concat(gone, admissions(order)))
	}
	last := len(bound) - 1
	return append(all, slices.Concat(admissions(bound[:last]), gone, admissions(bound[last:])))
}

// byCreation has the pods by the second of their creation, and otherwise leaves them as they are.
func byCreation(pods []*v1.Pod) []*v1.Pod {
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix())
	})
}
