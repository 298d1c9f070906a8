// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"
)

// Present identifies the pod that has a name now.
type Present struct {
	UID     string    // "" if unknown
	Created time.Time // zero if unknown
}

// MarkEarlier marks the decisions of deleted pods whose name the pod of the last decision has. A decision
// that names the UID of its pod is judged by the UID. Otherwise devices that are held still are the present
// pod's; other decisions before the creation of the present pod are of a deleted pod; and a container gets
// each resource once, so that a repeated allocation, or a decision after a refusal, is a later pod's.
func MarkEarlier(decisions []Decision, present Present) {
	type half struct{ container, resource string }
	begin, allocated, refused := 0, map[half]bool{}, false
	for i, d := range decisions {
		if d.isOfClaim() { // the DRA driver has only present claims
			continue
		}
		of := half{d.Container, d.Resource}
		if allocated[of] || refused {
			begin, allocated = i, map[half]bool{}
		}
		allocated[of] = d.AllocatedAt != nil
		refused = d.Refusal != ""
	}
	for i, d := range decisions {
		earlier := i < begin || d.isBefore(present.Created) && !d.Held
		if present.UID != "" && d.PodUID != "" {
			earlier = d.PodUID != present.UID
		}
		decisions[i].EarlierPod = earlier
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
