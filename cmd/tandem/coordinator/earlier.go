// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"path"
	"slices"
	"time"
)

// Present identifies the pod that has a name now.
type Present struct {
	UID     string    // "" if unknown
	Created time.Time // zero if unknown
}

// MarkEarlier marks the decisions of deleted pods whose name a later pod has. Decisions that name the UIDs of
// their pods are judged by the UIDs. Otherwise devices that are held still are the present pod's; other
// decisions before the creation of the present pod are of a deleted pod; and a container gets each resource
// once, so that a repeated allocation, or a decision after a refusal, is a later pod's.
func MarkEarlier(decisions []Decision, present Present) {
	pods := map[string]*decidedPod{}
	for i, d := range decisions {
		if d.isOfClaim() { // the DRA driver has only present claims
			continue
		}
		if p := pods[d.pod()]; p == nil || p.isBefore(d) {
			pods[d.pod()] = &decidedPod{begin: i, allocated: map[half]bool{}}
		}
		pods[d.pod()].add(d)
	}
	for i, d := range decisions {
		p := pods[d.pod()]
		earlier := p != nil && i < p.begin || d.isBefore(present.Created) && !d.Held
		if present.UID != "" && d.PodUID != "" {
			earlier = d.PodUID != present.UID
		}
		decisions[i].EarlierPod = earlier
	}
}

// decidedPod is the latest pod of a name among decisions.
type decidedPod struct {
	begin     int    // index of its first decision
	uid       string // "" if unknown
	allocated map[half]bool
	refused   bool
}

// half is a resource of a container.
type half struct{ container, resource string }

// isBefore reports whether a decision for the name is for a later pod.
func (p *decidedPod) isBefore(d Decision) bool {
	if p.uid != "" && d.PodUID != "" {
		return p.uid != d.PodUID
	}
	return p.allocated[half{d.Container, d.Resource}] || p.refused
}

// add adds a decision for the pod.
func (p *decidedPod) add(d Decision) {
	p.uid = cmp.Or(p.uid, d.PodUID)
	p.allocated[half{d.Container, d.Resource}] = d.AllocatedAt != nil
	p.refused = d.Refusal != ""
}

// pod returns the name of the pod, namespace/pod.
func (d Decision) pod() string { return path.Dir(d.Container) }

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
