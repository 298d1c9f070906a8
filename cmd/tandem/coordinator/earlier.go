// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"
)

// MarkEarlier marks the decisions of deleted pods whose name the pod of the last decision has. A container
// gets each resource once, so that a repeated allocation, or a decision after a refusal, is a later pod's. If
// the creation of the present pod is known, all earlier decisions are of deleted pods.
func MarkEarlier(decisions []Decision, created time.Time) {
	type half struct{ container, resource string }
	begin, given, refused := 0, map[half]bool{}, false
	for i, d := range decisions {
		if d.isOfClaim() { // the DRA driver has only present claims
			continue
		}
		of := half{d.Container, d.Resource}
		if given[of] || refused {
			begin, given = i, map[half]bool{}
		}
		given[of] = d.AllocatedAt != nil
		refused = d.Refusal != ""
	}
	for i := range decisions {
		decisions[i].EarlierPod = i < begin || decisions[i].isBefore(created)
	}
}

// skew is the largest expected difference between the clocks of a node and of the API server.
const skew = 30 * time.Second

// isBefore reports whether a decision is known to be older than a pod.
func (d Decision) isBefore(created time.Time) bool {
	return !created.IsZero() && !d.isOfClaim() && d.Time.Before(created.Add(-skew))
}

// isOfClaim reports whether the scheduler made the decision, for a ResourceClaim.
func (d Decision) isOfClaim() bool { return !d.Asked && d.Known != "" }

// split returns the decisions of the present pod and those of earlier pods.
func split(decisions []Decision) (present, earlier []Decision) {
	for _, d := range decisions {
		if d.EarlierPod {
			earlier = append(earlier, d)
		} else {
			present = append(present, d)
		}
	}
	return present, earlier
}

// verdictOf returns the result of a container in a few words: of its last decision with a reason.
func verdictOf(container string, decisions []Decision) string {
	verdict := ""
	for _, d := range slices.Backward(decisions) {
		if d.Container != container {
			continue
		}
		if verdict == "" || d.Reason != "" {
			verdict = d.result()
		}
		if d.Refusal != "" || d.Reason != "" {
			break
		}
	}
	return verdict
}
