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
// it or after it; in every order it has to be admitted, and may not have another refused.
func (s *seen) ask(pod *v1.Pod) verdict.Verdict {
	v := s.after.Ask(pod)
	if !v.Admitted || len(s.inFlight) == 0 {
		return v
	}
	for _, order := range orders(s.inFlight, pod) {
		if !s.admits(order, pod) {
			return verdict.Verdict{Reason: overtaken}
		}
	}
	for _, now := range s.courses() {
		if !now.Ask(pod).Admitted {
			return verdict.Verdict{Reason: overtaken}
		}
	}
	return v
}

// admits reports whether a pod is admitted in one order, and all those after it that are without it.
func (s *seen) admits(order []*v1.Pod, pod *v1.Pod) bool {
	at := slices.Index(order, pod)
	with := s.held.Clone()
	for _, before := range order[:at] {
		with.Admit(before)
	}
	if at == len(order)-1 {
		return with.Ask(pod).Admitted
	}
	without := with.Clone()
	if !with.Admit(pod).Admitted {
		return false
	}
	for _, after := range order[at+1:] {
		expected, admitted := without.Admit(after).Admitted, with.Admit(after).Admitted
		if expected && !admitted {
			return false
		}
	}
	return true
}

// few is how many pods on their way are tried in every order.
const few = 3

// orders are those in which a kubelet may admit pods that are on their way and one that is sent after them.
// It receives pods in the order in which they were bound, and takes those that it receives together by the
// time of their creation, those of one second as it happens (HandlePodAdditions in pkg/kubelet/kubelet.go).
// More than a few are tried as bound, by creation, and with those of one second the other way round.
func orders(inFlight []*v1.Pod, pod *v1.Pod) [][]*v1.Pod {
	bound := append(slices.Clone(inFlight), pod)
	if len(bound) <= few {
		return permutations(bound)
	}
	slices.Reverse(bound)
	reversed := byCreation(bound)
	slices.Reverse(bound)
	return [][]*v1.Pod{bound, byCreation(bound), reversed}
}

// byCreation has the pods by the second of their creation, and otherwise leaves them as they are.
func byCreation(pods []*v1.Pod) []*v1.Pod {
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix())
	})
}

// permutations are all orders of a list, which itself comes last.
func permutations[T any](list []T) [][]T {
	if len(list) < 2 {
		return [][]T{list}
	}
	var all [][]T
	for i := range list {
		for _, before := range permutations(slices.Delete(slices.Clone(list), i, i+1)) {
			all = append(all, append(before, list[i]))
		}
	}
	return all
}
